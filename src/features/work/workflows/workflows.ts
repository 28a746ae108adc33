/* The public face of this folder. */

export type { ExtensionNode, WorkflowParts, Workflows, WorkflowWrites } from './capabilities.ts'
export { openGroupCommit } from './group-commit.ts'
export {
  type ClaimedExecution,
  claimDueExecutions,
  deleteOldExecutions,
  giveBack,
  insertExecutions,
  nextExecutionMs,
  recoverExecutions,
} from './queries.ts'
export { ClaimLost } from './records.ts'
export { runExecution } from './run.ts'
export { openTriggers } from './triggers.ts'
