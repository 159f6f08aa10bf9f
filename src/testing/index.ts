export {
  type DescribeStateStoreOptions,
  describeStateStore,
  type StoreScope,
} from './describe-state-store.ts';
export type { StoreUnderTest } from './fixtures.ts';
