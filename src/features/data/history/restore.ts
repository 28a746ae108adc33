import { Type } from '../../../adapters/typebox.ts'
import type { Collection, Field } from '../../../catalog/catalog.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import { AppError } from '../../../errors.ts'
import { readAs } from '../../../http/reading.ts'
import { Text } from '../../../http/shapes.ts'
import { readableFields } from '../../../query/resolve.ts'
import type { Requester } from '../items/items.ts'
import { type Change, changeItems, inTransaction, readOne, readVersion } from '../items/items.ts'
import { type HistoryReads, type HistoryWrites, readEventVersion } from './history.ts'

type Values = Readonly<Record<string, unknown>>

/** Which version: the one after or before one of the item's events, or that of a cursor or a time. */
export const RestoreBody = Type.Union(
  [
    Type.Object({ event: Text('4711') }, { additionalProperties: false }),
    Type.Object({ before: Text('4711') }, { additionalProperties: false }),
    Type.Object({ asOf: Text('2026-03-14T09:26:53Z') }, { additionalProperties: false }),
  ],
  { refusal: 'Request body must be {event}, {before} or {asOf}' },
)

/**
 * `POST /items/{collection}/{id}/restore` with `{event}` or `{before}`, the id of one of the item's events, or `{asOf}`, a
 * cursor or a time: writes what differs from that version, as an ordinary update of the caller's, or creates an item that is gone
 * with its old id. Answers its id as JSON text. Fields that the caller may not read stay as they are. 400 for another
 * body, 403 for a version that the caller may not see or a field that it may not write, 412 when somebody else writes the
 * item meanwhile.
 */
export async function restoreItem(
  deps: HistoryWrites,
  requester: Requester,
  name: string,
  id: string,
  body: unknown,
): Promise<string> {
  const fields = restorable(deps, requester, name)
  const version = await versionOf(deps, requester, name, id, body, fields)
  const present = await presentOf(deps, requester, name, id, fields)
  return write(deps, requester, name, changeBack(deps, name, id, { fields, version, present }), { version, present })
}

type Versions = { readonly version: Values; readonly present: Present | undefined }
type Present = { readonly values: Values; readonly version: string }

/** The differences, as a change by the caller. */
function changeBack(
  { catalog }: CurrentCatalog,
  name: string,
  id: string,
  { fields, version, present }: Versions & { readonly fields: readonly Field[] },
): Change {
  if (present === undefined) {
    const { primaryKey } = catalog.current().collections.get(name)!
    return { action: 'create', payloads: [{ ...picked(version, fields), [primaryKey.name]: id }] }
  }
  const changed = fields.filter((field) => !same(version[field.name], present.values[field.name]))
  return { action: 'update', changes: [{ id, payload: picked(version, changed) }], ifMatch: [present.version] }
}

async function write(
  deps: HistoryWrites,
  requester: Requester,
  name: string,
  change: Change,
  { version, present }: Versions,
): Promise<string> {
  const restoring = await deps.systemRules.get(name)?.restores?.(deps, version, present?.values)
  if (restoring === undefined) return (await changeItems(deps, requester, name, change)).ids[0]!
  const platform = { collection: name, values: restoring.values }
  return inTransaction(deps, requester, async ({ tx, scope }) => {
    await restoring.during(tx)
    return (await changeItems(deps, { ...requester, platform, scope }, name, change)).ids[0]!
  })
}

async function versionOf(
  deps: HistoryReads,
  { access }: Requester,
  name: string,
  id: string,
  body: unknown,
  fields: readonly Field[],
): Promise<Values> {
  const wanted = readAs(RestoreBody, body)
  if ('event' in wanted) return readEventVersion(deps, access, name, id, wanted.event, 'after')
  if ('before' in wanted) return readEventVersion(deps, access, name, id, wanted.before, 'before')
  return dataOf(await readOne(deps, access, name, id, { ...asked(fields), asOf: wanted.asOf }))
}

/** Undefined for an item that is gone, and for one that is not the caller's to see: its id can't be taken then. */
async function presentOf(
  deps: HistoryReads,
  { access }: Requester,
  name: string,
  id: string,
  fields: readonly Field[],
) {
  try {
    const { body, version } = await readVersion(deps, access, name, id, asked(fields))
    return { values: dataOf(body), version: version! }
  } catch (error) {
    // Every other refusal came before: the version has been read with the same fields.
    if (error instanceof AppError && error.status === 403) return undefined
    throw error
  }
}

const asked = (fields: readonly Field[]) => ({ fields: fields.map(({ name }) => name), paranoid: 'false' })

const dataOf = (body: string): Values => JSON.parse(body).data

const picked = (values: Values, fields: readonly Field[]): Values =>
  Object.fromEntries(fields.map(({ name }) => [name, values[name] ?? null]))

const same = (a: unknown, b: unknown): boolean => JSON.stringify(a ?? null) === JSON.stringify(b ?? null)

/** The fields of a row that the caller sees and a request can set. */
function restorable(deps: CurrentCatalog, { access }: Requester, name: string): readonly Field[] {
  const catalog = deps.catalog.current()
  const readable = readableFields(catalog, access, name)
  const own = serversOwn(catalog.collections.get(name)!)
  return readable.filter(
    (field) => !field.primaryKey && !field.unlogged && field.generated === undefined && !own.has(field.name),
  )
}

const serversOwn = ({ timestamps, usertrack }: Pick<Collection, 'timestamps' | 'usertrack'>): ReadonlySet<string> =>
  new Set([
    ...(timestamps ? ['createdAt', 'updatedAt'] : []),
    ...(usertrack ? ['userCreated_Id', 'userUpdated_Id'] : []),
  ])
