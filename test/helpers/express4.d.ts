declare module 'express4' {
  import type express from 'express';

  /** Express 4 under an alias. What the tests use of it is the same in Express 5. */
  const express4: typeof express;
  export default express4;
}
