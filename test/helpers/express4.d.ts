declare module 'express4' {
  import type express from 'express';

  /** Express 4 under an alias; what the tests use of it is the same in both majors. */
  const express4: typeof express;
  export default express4;
}
