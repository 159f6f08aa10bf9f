/** Loaded in front of the checkout's server: has its first payment wait for the test's word. */
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
