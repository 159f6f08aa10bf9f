export {
  type DescribeStateStoreOptions,
  describeStateStore,
} from './describe-state-store.ts';
export type { StoreScope, StoreUnderTest } from './fixtures.ts';
