import type { Catalog } from '../../../catalog/catalog.ts'
import { clientError } from '../../../db/errors.ts'
import { rawQuery, type Tx } from '../../../db/sql.ts'
import { AppError, inFull } from '../../../errors.ts'
import { isUuid } from '../../../language/text.ts'
import { isObject } from '../../../query/guards.ts'
import { type Change, changeItems, type ItemWrites, type Requester, type Run } from '../../data/items/items.ts'
import { blocksOf, canonical, type FilePart, nameOf, type PartKind, refused, type Value } from './files.ts'
import { storedBlocks } from './installation.ts'
import type { Installation, Step } from './plan.ts'

/** The steps of a plan, done by the doors that requests go through, so that every rule of a row counts here too. */

const tables: Readonly<Record<PartKind, string>> = {
  roles: 'svc_Role',
  permissions: 'svc_Permission',
  rules: 'svc_ACL',
  workflows: 'svc_Workflow',
  templates: 'svc_Template',
  pages: 'svc_Page',
  views: 'svc_View',
  settings: 'svc_Settings',
}

/** What comes first is what others name: permissions name rules and roles. */
const order: readonly PartKind[] = [
  'rules',
  'roles',
  'permissions',
  'workflows',
  'templates',
  'pages',
  'views',
  'settings',
]

type Applying = {
  readonly deps: ItemWrites
  readonly requester: Requester
  readonly run: Run
  /** Ids of rules, roles and pages by kind and key; those that are made come in. */
  readonly ids: Map<string, string>
}

/** A member that names another row of its kind, which may come later. */
const later: Partial<Record<PartKind, string>> = { roles: 'canInviteRoles', pages: 'parent' }

/**
 * Does the steps within a transaction, against the collections as they are in it.
 *
 * @throws {AppError} of the first step that is refused, with its file and member
 */
export async function applySteps(
  deps: ItemWrites,
  run: Run,
  { catalog, parts }: Installation,
  steps: readonly Step[],
): Promise<void> {
  const { requester, scope } = run
  const ids = new Map(parts.map((part) => [`${part.kind}\n${part.key}`, part.id]))
  const applying: Applying = {
    deps: within(deps, run.tx, catalog),
    requester: { ...requester, scope },
    run,
    ids,
  }
  const drops = steps.filter((step) => step.do === 'drop')
  const dropAll = async (kinds: readonly PartKind[]) => {
    for (const kind of kinds)
      for (const { stored } of drops.filter((step) => step.stored.kind === kind))
        await placed(nameOf(stored), () => drop(applying, kind, stored.id))
  }
  // Before a rule changes that they name.
  await dropAll(['permissions'])
  for (const kind of order) await applyKind(applying, kind, steps)
  await dropAll(['workflows', 'views', 'pages', 'templates', 'rules', 'roles'])
}

async function applyKind(applying: Applying, kind: PartKind, steps: readonly Step[]): Promise<void> {
  const own = steps.flatMap((step) => (step.do !== 'drop' && step.part.kind === kind ? [step] : []))
  const forward = later[kind]
  for (const step of own) {
    if (step.do !== 'create') continue
    const { [forward ?? '']: _, ...value } = step.part.value
    await at(step.part, () => create(applying, { ...step.part, value }, step.stored?.id))
  }
  for (const { do: what, part } of own) {
    if (what !== 'create' || forward === undefined || part.value[forward] == null) continue
    await at(part, () => change(applying, part, [forward]))
  }
  for (const step of own) if (step.do === 'change') await at(step.part, () => change(applying, step.part, step.members))
}

async function create(applying: Applying, part: FilePart, deleted: string | undefined): Promise<void> {
  const { kind, value } = part
  const payload = payloadOf(applying, part, Object.keys(value))
  if (kind === 'views') return insertView(applying, payload)
  const id =
    deleted === undefined
      ? await write(applying, kind, { action: 'create', payloads: [payload] })
      : await write(applying, kind, {
          action: 'update',
          changes: [{ id: deleted, payload: { ...payload, deletedAt: null } }],
        })
  applying.ids.set(`${kind}\n${part.key}`, id)
  if (kind === 'pages') await setBlocks(applying, id, value.blocks)
}

async function change(applying: Applying, part: FilePart, members: readonly string[]): Promise<void> {
  const { kind, key, value } = part
  const id = applying.ids.get(`${kind}\n${key}`)!
  const payload = payloadOf(applying, part, members)
  if (kind === 'views') return updateView(applying, id, payload)
  if (Object.keys(payload).length > 0) await write(applying, kind, { action: 'update', changes: [{ id, payload }] })
  if (kind === 'pages' && members.includes('blocks')) await setBlocks(applying, id, value.blocks)
  if (kind === 'settings')
    applying.run.scope.events.push({ type: 'system.settings', data: { tenantId: null, keys: [...members] } })
}

async function drop(applying: Applying, kind: PartKind, id: string): Promise<void> {
  if (kind === 'views') await applying.run.tx.any(rawQuery(`delete from "svc_View" where id = $1`, [id]))
  else await write(applying, kind, { action: 'delete', ids: [id] })
}

async function write({ deps, requester }: Applying, kind: PartKind, change: Change): Promise<string> {
  const { ids } = await changeItems(deps, requester, tables[kind], change)
  return String(JSON.parse(ids[0]!))
}

/** Members as columns: names become the ids that this installation has for them. */
function payloadOf(applying: Applying, part: FilePart, members: readonly string[]): Record<string, unknown> {
  const { kind, value } = part
  const given = members.flatMap((name) => columnsOf(applying, part, name, value[name]))
  const role = kind === 'permissions' ? [['role_Id', idOf(applying, part, 'roles', part.key.split('\n')[0]!)]] : []
  return Object.fromEntries([...given, ...role])
}

function columnsOf(
  applying: Applying,
  part: FilePart,
  name: string,
  value: unknown,
): readonly (readonly [string, unknown])[] {
  const roles = (list: unknown) => idsOf(applying, part, name, 'roles', list)
  const { kind } = part
  if (kind === 'roles' && name === 'canInviteRoles') return [['canInviteRoleIds', roles(value) ?? []]]
  if (kind === 'permissions' && name === 'acls')
    return [['acl_Ids', idsOf(applying, part, name, 'rules', value) ?? null]]
  if (kind === 'workflows' && name === 'allowed_roles') return [[name, roles(value) ?? null]]
  if (kind === 'pages' && name === 'blocks') return []
  if (kind === 'pages' && name === 'parent')
    return [['parent_Id', value === null ? null : idOf(applying, part, 'pages', String(value))]]
  if (kind === 'views' && name === 'role') return [['role_Id', idOf(applying, part, 'roles', String(value))]]
  if (kind === 'settings' && name === 'session_limits') return [[name, limitsOf(applying, part, value)]]
  return [[name, value]]
}

function limitsOf(applying: Applying, part: FilePart, limits: unknown): unknown {
  if (!isObject(limits) || !isObject(limits.roles)) return limits
  const entries = Object.entries(limits.roles).map(([name, limit]) => [idOf(applying, part, 'roles', name), limit])
  return { ...limits, roles: Object.fromEntries(entries) }
}

function idsOf(applying: Applying, part: FilePart, member: string, kind: 'roles' | 'rules', list: unknown) {
  if (list == null) return undefined
  if (!Array.isArray(list)) throw refused(part.file, `${part.at}.${member}`, `must be a list of names of ${kind}`)
  return list.map((name) => idOf(applying, part, kind, String(name)))
}

/** An export of another door names them by id, which is one here where the file is from here. */
function idOf({ ids }: Applying, { file, at }: FilePart, kind: 'roles' | 'rules' | 'pages', name: string): string {
  const id = ids.get(`${kind}\n${name}`) ?? (isUuid(name) && [...ids.values()].includes(name) ? name : undefined)
  if (id === undefined) throw refused(file, at, `there is no ${kind.slice(0, -1)} ${name}`)
  return id
}

/** Those that are as they shall be stay as they are. */
async function setBlocks({ deps, requester, run }: Applying, page: string, blocks: unknown): Promise<void> {
  if (!Array.isArray(blocks)) return
  const missing = new Map<string, Value[]>()
  for (const block of blocksOf(blocks)) {
    const text = canonical(block)
    missing.set(text, [...(missing.get(text) ?? []), block])
  }
  const stored = await storedBlocks(run.tx, page)
  const gone = stored.filter(({ value }) => missing.get(canonical(value))?.pop() === undefined)
  const change = (one: Change) => changeItems(deps, requester, 'svc_Block', one)
  if (gone.length > 0) await change({ action: 'delete', ids: gone.map(({ id }) => id) })
  const payloads = [...missing.values()].flat().map((block) => ({ ...block, page_Id: page }))
  if (payloads.length > 0) await change({ action: 'create', payloads })
}

/** No door of items writes these: they belong to users, here to the one in whose name the project is applied. */
async function insertView({ requester, run }: Applying, view: Record<string, unknown>): Promise<void> {
  const { name, page, collection = null, query = {}, role_Id = null } = view
  await run.tx.any(
    rawQuery(
      `insert into "svc_View" (name, page, collection, query, "role_Id", "user_Id")
       select name, page, collection, query, "role_Id", $2::uuid from jsonb_populate_record(null::"svc_View", $1::jsonb)`,
      [JSON.stringify({ name, page, collection, query, role_Id }), requester.access.userId ?? null],
    ),
  )
}

async function updateView({ run }: Applying, id: string, { query }: Record<string, unknown>): Promise<void> {
  await run.tx.any(
    rawQuery(`update "svc_View" set query = $2::jsonb, "updatedAt" = now() where id = $1`, [id, JSON.stringify(query)]),
  )
}

const at = (part: FilePart, work: () => Promise<void>): Promise<void> => placed(`${part.file}: ${part.at}`, work)

/** Puts the place in front of a refusal. */
async function placed(place: string, work: () => Promise<void>): Promise<void> {
  try {
    await work()
  } catch (error) {
    const refusal = error instanceof AppError ? error : clientError(error)
    if (!(refusal instanceof AppError) || refusal.status >= 500 || refusal.code === 'PROJECT_INVALID') throw error
    const { status, code } = refusal
    throw new AppError(status, `${place}${wordsOf(refusal)}`, { code, cause: error })
  }
}

function wordsOf(refusal: AppError): string {
  const { details } = refusal
  const list = isObject(details) && Array.isArray(details.errors) ? details.errors : []
  const ofFields = list.filter((one) => isObject(one) && typeof one.field === 'string')
  if (ofFields.length === 0) return `: ${inFull(refusal)}`
  return ofFields.map(({ field, message }, i) => `${i === 0 ? '.' : '; '}${field}: ${message}`).join('')
}

/**
 * The same parts as the transaction sees them: checks of rows look for rules and roles that it has just written, and at
 * collections that nobody else knows yet.
 */
function within(deps: ItemWrites, tx: Tx, catalog: Catalog): ItemWrites {
  const now = async () => catalog
  return {
    ...deps,
    catalog: { ...deps.catalog, current: () => catalog, reload: now, reloadIfStale: now },
    db: {
      ...deps.db,
      any: (query) => tx.any(query),
      maybeOne: (query) => tx.maybeOne(query),
      one: (query) => tx.one(query),
      run: async (text, values) => [...(await tx.any<never>(rawQuery(text, values as never)))],
    },
  }
}
