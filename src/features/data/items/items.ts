/* The public face of this folder; its other files are its own. */

export { isFresh, listTag, readCached, type ServedAnswer, versionsOf } from './cached-reads.ts'
export { type Change, changeItems, updatesIn } from './change.ts'
export {
  type Cell,
  type CollectionRules,
  type GuardedChange,
  type ItemReads,
  type ItemWrites,
  keyCell,
  type LastingEffect,
  openProblems,
  type PayloadContext,
  type PlatformValues,
  type Requester,
  type Restoration,
  type RowChange,
  type Run,
  type StoredValues,
  type SystemRules,
  type UndoneEvents,
  type WriteContext,
  withCells,
} from './context.ts'
export {
  CollectionParams,
  fileBody,
  ImportedShape,
  ItemParams,
  ItemsShape,
  Key,
  ListQuery,
  ReadQuery,
  ReportBody,
  ReportQuery,
  WrittenShape,
} from './declarations.ts'
export {
  type Accountability,
  accountabilityOf,
  actorOfHook,
  afterwards,
  type HookDb,
  insideScope,
  inTransaction,
  listItems,
  readItem,
  readingDb,
  requesterFor,
  scopeOfHook,
  writingDb,
} from './hooking.ts'
export { importContent } from './import-routes.ts'
export { isScoped, isTenanted, readPayload } from './payload.ts'
export { openWrite } from './plan.ts'
export {
  answerPlan,
  answerQuestion,
  type DependencyRecorder,
  type ListRow,
  largestWhole,
  listBody,
  type OpenAnswer,
  openList,
  readList,
  readOne,
  readVersion,
  streamRows,
} from './reads.ts'
export { type Rights, rightsOf, type WriteRights } from './rights.ts'
export { answerItem, answerList, queryOf, requesterOf } from './routes.ts'
export { canonicalKey, keyCondition, parameters, ruleSql } from './statements.ts'
