/* What other slices and the processes use of this folder; its other files are its own. */

export type { ExtensionNode, WorkflowParts, Workflows, WorkflowWrites } from './capabilities.ts'
export {
  type ClaimedExecution,
  ClaimLost,
  claimDueExecutions,
  deleteOldExecutions,
  giveBack,
  insertExecutions,
  nextExecutionMs,
  recoverExecutions,
} from './queries.ts'
export { runExecution } from './run.ts'
export { openTriggers } from './triggers.ts'
