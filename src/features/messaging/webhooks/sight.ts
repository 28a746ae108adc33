import { createHash } from 'node:crypto'
import { administratorRole, mayAssign, variablesIn } from '../../../access/access.ts'
import { accessOfRole } from '../../../access/principal.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Reader } from '../../../db/sql.ts'
import { AppError, errors, inFull } from '../../../errors.ts'
import { imagesOf } from '../../../events/consumer.ts'
import type { LogEvent } from '../../../events/log-reader.ts'
import type { Access } from '../../../query/access.ts'
import { quoted } from '../../../query/guards.ts'
import { parseListQuery } from '../../../query/parse.ts'
import { readableFields, requestedFields, resolveEnv } from '../../../query/resolve.ts'
import {
  accessCollections,
  type ChangesReads,
  type ChangeView,
  changedRows,
  type FollowedCollection,
  readableCollections,
  ruleSources,
  seenAction,
  type VisibleChange,
  viewersOf,
  viewOf,
} from '../../data/changes/changes.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import { ownerOf, type Webhook } from './queries.ts'

/*
 * The view of a webhook: the rows and fields that its role may read, as for a subscriber on the socket. It decides when
 * an event is handled whether there is anything to deliver, and again at each delivery what to send.
 */

export type SightReads = ChangesReads & CurrentSettings & Configuration

/** A webhook's role compiled, and what it follows with it. */
export type Sight = {
  readonly access: Access
  readonly followed: ReadonlyMap<string, FollowedCollection>
  /** Collections that decide which rows it sees, beside those that it follows. */
  readonly watched: ReadonlySet<string>
}

type WebhookInterest = Pick<Webhook, 'collections' | 'filter' | 'fields' | 'role_Id' | 'tenant_Id'>

/**
 * Compiles what a webhook wants for its role, of the collections that `isAmong` lets pass. Throws AppError 404 for an unknown collection, 403 for what the role may not
 * read, 400 for what makes no sense.
 */
export function sightOf(
  deps: SightReads,
  { collections, filter, fields, role_Id, tenant_Id }: WebhookInterest,
  isAmong: (access: Access, name: string) => boolean = () => true,
): Sight {
  const catalog = deps.catalog.current()
  const rules = deps.access.current()
  const role = rules.roles.get(role_Id)
  if (role === undefined) throw new AppError(400, 'role_Id: there is no such role')
  const access = accessOfRole(deps, rules, role, deps.config.tenancy.enabled ? (tenant_Id ?? undefined) : undefined)
  const own = parseListQuery({ ...(filter && { filter }) }).filter
  const followed = new Map<string, FollowedCollection>()
  const watched = new Set<string>(accessCollections)
  if (collections.includes(everything) && (filter !== null || fields !== null))
    throw errors.badBody(`filter and fields need collections by name: ${everything} stands for many`)
  for (const name of namesOf(catalog, access, collections)) {
    if (!isAmong(access, name)) continue
    const collection = catalog.collections.get(name)
    if (collection === undefined) throw errors.unknownCollection(name)
    if (!collection.logged) throw errors.badQuery(`collections: changes of ${quoted(name)} are not recorded`)
    const grant = access.grant(name, 'read')
    if (!access.admin && grant === undefined) throw errors.actionDenied('read', name)
    const personal = variablesIn([grant?.conditions, grant?.relConditions, own], catalog).find((variable) =>
      personalVariables.has(variable.name),
    )
    // One that comes to be personal later must not end a webhook of all.
    if (personal !== undefined && !collections.includes(name)) continue
    if (personal !== undefined)
      throw new AppError(400, `A webhook has no user: $${personal.name} cannot decide what it sees of '${name}'`)
    const shown =
      fields === null ? readableFields(catalog, access, name) : requestedFields(catalog, access, name, fields)
    followed.set(name, { collection, fields: shown, filter: own })
    const sources = ruleSources(catalog, rules, access, collection, resolveEnv(deps), own)
    for (const one of [...sources.collections, ...sources.rows.map((row) => row.collection)]) watched.add(one)
    viewIn(deps, access, followed.get(name)!)
  }
  return { access, followed, watched }
}

/** In place of names: the collections of the project that the role may read; those of the platform are named one by one. */
export const everything = '*'

function namesOf(catalog: Catalog, access: Access, collections: readonly string[]): ReadonlySet<string> {
  if (!collections.includes(everything)) return new Set(collections)
  const all = readableCollections(catalog, access).flatMap(({ name }) => (name.startsWith('svc_') ? [] : [name]))
  return new Set([...collections.filter((name) => name !== everything), ...all])
}

const personalVariables: ReadonlySet<string> = new Set(['CURRENT_USER', 'CURRENT_USERROLE'])

/**
 * Why a webhook may not see with its role any more; undefined while it may. Administrators may have any role see, others
 * their own at their own tenant and those that they may assign there, as long as they have rights to webhooks there.
 */
export async function refusalOf(
  deps: SightReads,
  db: Reader,
  webhook: Pick<Webhook, 'user_Id' | 'role_Id' | 'tenant_Id'>,
) {
  const owner = await ownerOf(db, webhook.user_Id)
  const rules = deps.access.current()
  const { roles } = rules
  const role = roles.get(webhook.role_Id)
  if (owner === undefined || role === undefined) return 'its owner is not active any more, or its role is gone'
  const held = owner.memberships.flatMap(({ roleId, tenantId }) => {
    const own = roles.get(roleId)
    return own === undefined ? [] : [{ own, tenantId }]
  })
  const byAdministrator = held.some(
    ({ own }) => own.name === administratorRole && (role.name !== administratorRole || own.id === role.id),
  )
  if (byAdministrator) return undefined
  const assigning = held.filter(
    ({ own, tenantId }) =>
      own.name !== administratorRole &&
      tenantId === webhook.tenant_Id &&
      (own.id === role.id || mayAssign({ admin: false, role: own }, role)),
  )
  if (assigning.length === 0) return 'its owner may not assign its role any more'
  const mayHaveSome = assigning.some(({ own }) => {
    const access = accessOfRole(deps, rules, own, webhook.tenant_Id ?? undefined)
    return actionsOnWebhooks.some((action) => access.grant('svc_Webhook', action) !== undefined)
  })
  return mayHaveSome ? undefined : 'its owner has no rights to webhooks any more'
}

/** Who has none of these can neither see a webhook nor end it. */
const actionsOnWebhooks = ['create', 'read', 'update', 'delete'] as const

/**
 * What a webhook sees now. A collection that is gone, or that its role may not read any more, is simply not there, and the
 * others go on; `refusal` says what makes no sense any more of what is left, such as the name of a dropped field.
 */
export function seenBy(
  deps: SightReads,
  webhook: WebhookInterest,
): { readonly sight: Sight; readonly refusal?: undefined } | { readonly sight?: undefined; readonly refusal: string } {
  try {
    return { sight: sightOf(deps, webhook, (access, name) => isReadable(deps.catalog.current(), access, name)) }
  } catch (error) {
    if (error instanceof AppError) return { refusal: `it cannot see what it follows any more: ${inFull(error)}` }
    throw error
  }
}

const isReadable = (catalog: Catalog, access: Access, name: string): boolean =>
  catalog.collections.has(name) && (access.admin || access.grant(name, 'read') !== undefined)

type SeenEvent = { readonly action: string; readonly row: VisibleChange | undefined }

/**
 * The visible parts of events, by position; invisible events have none. An erased event shows only that it happened,
 * and only if the role sees every row of the collection: otherwise it cannot be known any more whether it saw the row.
 */
export async function seenEvents(
  deps: SightReads,
  db: Reader,
  { access, followed }: Sight,
  events: readonly Pick<LogEvent, 'entity' | 'position' | 'action'>[],
): Promise<ReadonlyMap<string, SeenEvent>> {
  const seen = new Map<string, SeenEvent>()
  for (const [name, ofIt] of Map.groupBy(events, ({ entity }) => entity)) {
    const one = followed.get(name)
    if (one === undefined) continue
    const view = viewIn(deps, access, one)
    const positions = ofIt.map(({ position }) => position)
    const rows = new Map(
      (await changedRows(deps.db, view, viewersOf([view]), positions)).map((row) => [row.position, row]),
    )
    for (const [position, row] of rows) {
      const action = seenAction(row)
      if (action !== undefined) seen.set(position, { action, row })
    }
    const missing = positions.filter((position) => !rows.has(position))
    if (missing.length === 0 || !seesAll(deps, access, one)) continue
    const images = await imagesOf(db, missing)
    for (const { position, action } of ofIt)
      if (images.get(position) === null) seen.set(position, { action, row: undefined })
  }
  return seen
}

function viewIn(deps: SightReads, access: Access, { collection, fields, filter }: FollowedCollection): ChangeView {
  const env = resolveEnv(deps)
  return viewOf({ catalog: deps.catalog.current(), access, collection, fields, env, scoped: true, filter })
}

/** Whether no rule and no filter keeps any row from it: then its view is that of a caller without rules. */
function seesAll(deps: SightReads, access: Access, { collection, fields, filter }: FollowedCollection): boolean {
  if (filter !== undefined) return false
  const free = viewOf({
    ...{ catalog: deps.catalog.current(), access, collection, fields },
    ...{ env: resolveEnv(deps), scoped: false },
  })
  return free.text === viewIn(deps, access, { collection, fields, filter }).text
}

/** The same for the same event, so that a receiver knows what it has had already, also in a replay. */
export function deliveryId(...parts: readonly string[]): string {
  const hex = createHash('sha256').update(parts.join(' ')).digest('hex')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}
