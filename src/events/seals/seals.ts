/** Seals: a log that shows whether it was tampered with (ADR 42). The public face of this folder. */

export {
  beginChainAnew,
  keysOfChain,
  newestHead,
  pruneLinks,
  raiseSealFloor,
  type Sweep,
  sealLag,
  sealPage,
  sealSummary,
  sweepGap,
  sweepOn,
} from './chain.ts'
export { keepCommitments, sealTablesSql } from './leaves.ts'
export { type Head, readHeads } from './links.ts'
export { type SealVerification, verifySeals, verifySealsOf } from './verify.ts'
export type { SealProblem, SealTrust } from './walk.ts'
