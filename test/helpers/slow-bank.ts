/** Loaded before the checkout's server: its first payment waits for the test. */
import { once } from 'node:events';
import { Shop } from '../../examples/express-checkout/shop.ts';

const { pay } = Shop.prototype;

Shop.prototype.pay = async function (...args) {
  Shop.prototype.pay = pay;
  process.send?.('paying');
  await once(process, 'message');
  process.disconnect?.();
  return pay.apply(this, args);
};
