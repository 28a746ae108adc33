/* The public face of this folder; its other files are its own. */

import type { Catalog, Collection, Field, Relation } from '../../../catalog/catalog.ts'
import type { Clock } from '../../../db/clock.ts'
import { AppError } from '../../../errors.ts'
import { type Access, reaches } from '../../../query/access.ts'
import { columnsBehind, readableFields } from '../../../query/resolve.ts'
import type { ChangeAction, ItemReads, PayloadContext, WriteAction } from './context.ts'
import { ownTenant, writableFields, writeGrant } from './payload.ts'
import { openWrite } from './plan.ts'

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
  type OpenTransaction,
  openProblems,
  type PayloadContext,
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
  itemsOf,
  Key,
  ListQuery,
  notationShape,
  ReadQuery,
  ReportBody,
  ReportQuery,
  TriedShape,
  WrittenShape,
} from './declarations.ts'
export { isMadeDeleted } from './guard.ts'
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
  wholeText,
  writingDb,
} from './hooking.ts'
export { readImages, refuseMisfits } from './images.ts'
export { importContent } from './import-routes.ts'
export { grantsNothing, isScoped, isTenanted, readPayload } from './payload.ts'
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
  readOfPlan,
  readOne,
  readVersion,
  streamRows,
} from './reads.ts'
export { answerItem, answerList, queryOf, requesterOf } from './routes.ts'
export {
  anotherVersion,
  canonicalKey,
  keyCondition,
  mayChangeTrash,
  parameters,
  ruleSql,
  type Versions,
} from './statements.ts'

/** The rights of a caller on the items of a collection, as far as they are known without looking at items. */
export type Rights = {
  /** The fields and relations that reads show; undefined where nothing may be read. */
  readonly read: ReadRights | undefined
  /** The fields that a payload may set; undefined where items may not be created, or changed. */
  readonly create: WriteRights | undefined
  readonly update: WriteRights | undefined
  readonly delete: boolean
}

type ReadRights = {
  readonly fields: readonly Field[]
  /** Relations that may be followed, with the fields of the rows at their end. */
  readonly relations: readonly { readonly relation: Relation; readonly fields: readonly Field[] }[]
}

export type WriteRights = {
  readonly fields: readonly Field[]
  readonly relations: readonly Relation[]
  /** Fields that the payload must set, as long as no relation stands for them. */
  readonly required: ReadonlySet<string>
}

/** The rights over one collection of the catalog. */
export function rightsOf(deps: ItemReads, access: Access, collection: Collection): Rights {
  const catalog = deps.catalog.current()
  return {
    read: readRights(catalog, access, collection),
    create: writeRights(deps, access, collection, 'create'),
    update: writeRights(deps, access, collection, 'update'),
    delete: opened(deps, access, collection, 'delete') !== undefined,
  }
}

function readRights(catalog: Catalog, access: Access, { name, relations }: Collection): ReadRights | undefined {
  if (!access.admin && access.grant(name, 'read') === undefined) return undefined
  const related = [...relations.values()].flatMap((relation) => {
    const fields = columnsBehind(catalog, access, name, [relation.name])
    return fields === undefined ? [] : [{ relation, fields }]
  })
  return { fields: readableFields(catalog, access, name), relations: related }
}

function writeRights(
  deps: ItemReads,
  access: Access,
  collection: Collection,
  action: WriteAction,
): WriteRights | undefined {
  const context = opened(deps, access, collection, action)
  if (context === undefined) return undefined
  if (action === 'create' && deps.systemRules.get(collection.name)?.createdElsewhere !== undefined) return undefined
  const granted = writeGrant(context.grant)
  const relations = [...collection.relations.values()]
  return {
    fields: writableFields(context),
    relations: relations.filter(({ name }) => granted === undefined || reaches(granted, [name])),
    required: action === 'create' ? requiredIn(context) : new Set(),
  }
}

/** Fields that the database demands, and that neither it nor the server fills in. */
function requiredIn(context: PayloadContext): ReadonlySet<string> {
  const { collection, grant } = context
  const filled = new Set([...Object.keys(grant?.defaultValues ?? {}), ownTenant(context)?.field.name])
  const required = [...collection.fields.values()].filter(
    ({ name, nullable, default: chosen, generated }) =>
      !nullable && chosen === undefined && generated === undefined && !filled.has(name),
  )
  return new Set(required.map(({ name }) => name))
}

/** Undefined where the caller is refused before any item is looked at. */
function opened<A extends ChangeAction>(deps: ItemReads & Clock, access: Access, { name }: Collection, action: A) {
  try {
    const context = openWrite(deps, { access }, name, action)
    // A role that is bound to a tenant changes nothing without one.
    if (action !== 'delete') ownTenant(context as unknown as PayloadContext)
    return context
  } catch (error) {
    if (error instanceof AppError) return undefined
    throw error
  }
}
