/* What other slices and the processes use of this folder; its other files are its own. */

export { cancelTask, countTasks, hurryTask, lockTask, redriveTask, type TaskState, taskStateSql } from './operations.ts'
export { claimById, claimDue, type Outcome, record, recoverTasks } from './outcomes.ts'
export { comingTasks, completeHeld, hasCreatorLeft, holdClaim, nextDueMs, type Wanted } from './queries.ts'
export {
  type AttemptClaim,
  type ClaimedTask,
  creatorLeftMessage,
  messageOf,
  type Progress,
  progressOf,
  resultJson,
  tasksActor,
  windowHours,
} from './task.ts'
