import { isDeepStrictEqual } from 'node:util'
import type { Catalog, CollectionDefinition } from '../../../catalog/catalog.ts'
import { type Reader, rawQuery } from '../../../db/sql.ts'
import { isOwn } from '../../data/schemas/schemas.ts'
import { seededTemplates } from '../../messaging/templates/templates.ts'
import { blocksOf, keyOf, members, type PartKind, type ProjectContent, portableSettings, type Value } from './files.ts'
import { hasAdditions, type Installation, type StoredPart } from './plan.ts'

/** The definition of an installation, read as the parts of a project: with names in place of ids. */

type Row = Readonly<Record<string, unknown>>

const builtInRoles: ReadonlySet<string> = new Set(['administrator', 'public', 'user'])

/** What is defined; of tenants, users and rows it reads nothing. */
export async function readInstallation(db: Reader, catalog: Catalog): Promise<Installation> {
  const roles = await rows(db, 'svc_Role', 'true')
  const rules = await rows(db, 'svc_ACL', 'true')
  const names: Names = {
    roles: new Map(roles.map((row) => [String(row.id), String(row.name)])),
    rules: new Map(rules.map((row) => [String(row.id), String(row.name)])),
  }
  return {
    catalog,
    parts: [
      ...rules.map((row) => partOf('rules', row, row, { isBuiltIn: row.system === true })),
      ...roles.map((row) => roleOf(row, names)),
      ...(await rows(db, 'svc_Permission', 'true')).map((row) => permissionOf(row, names)),
      ...(await rows(db, 'svc_Workflow', '"tenant_Id" is null')).map((row) => workflowOf(row, names)),
      ...(await rows(db, 'svc_Template', '"tenant_Id" is null')).map(templateOf),
      ...(await pagesOf(db)),
      ...(await viewsOf(db, names)),
      ...(await rows(db, 'svc_Settings', '"tenant_Id" is null')).map((row) => settingsOf(row, names)),
    ],
  }
}

/** What of it goes into files. */
export function contentOf({ catalog, parts }: Installation): ProjectContent {
  const schemas = [...catalog.collections.values()].flatMap(({ system, definition }) => {
    if (!system) return [definition]
    return hasAdditions(definition) ? [additionsOf(definition)] : []
  })
  return { schemas, parts: parts.filter(({ isBuiltIn, isDeleted }) => !isBuiltIn && !isDeleted) }
}

/** A system collection without what every installation has. */
function additionsOf({ collectionName, schema }: CollectionDefinition): CollectionDefinition {
  const fields = Object.fromEntries(Object.entries(schema.fields).filter(([, field]) => !isOwn(field)))
  const indexes = schema.indexes?.filter((index) => index.fields.some((name) => Object.hasOwn(fields, name))) ?? []
  return { collectionName, schema: { fields, ...(indexes.length > 0 && { indexes }) } }
}

type Names = { readonly roles: ReadonlyMap<string, string>; readonly rules: ReadonlyMap<string, string> }

/** The youngest first. */
const rows = async (db: Reader, table: string, where: string): Promise<readonly Row[]> => {
  const found = await db.any<{ row: Row }>(
    rawQuery(`select to_jsonb(t) as row from "${table}" t where ${where} order by "createdAt" desc, id desc`),
  )
  return found.map(({ row }) => row)
}

function partOf(
  kind: Exclude<PartKind, 'settings'>,
  { id }: Row,
  row: Row,
  more: Omit<StoredPart, 'kind' | 'key' | 'value' | 'id'> & { readonly role?: string | undefined } = {},
): StoredPart {
  const { role, ...flags } = more
  const value: Value = Object.fromEntries(
    members[kind].flatMap((name) => (row[name] === undefined ? [] : [[name, row[name]]])),
  )
  return { kind, key: keyOf(kind, value, role), value, id: String(id), ...flags }
}

const namesOf = (ids: unknown, names: ReadonlyMap<string, string>): readonly string[] =>
  (Array.isArray(ids) ? ids : []).map((id) => names.get(String(id)) ?? String(id))

function roleOf(row: Row, { roles }: Names): StoredPart {
  const ids: readonly unknown[] = Array.isArray(row.canInviteRoleIds) ? row.canInviteRoleIds : []
  // A role that is gone cannot be given; elsewhere nothing would have its id.
  const canInviteRoles = ids.flatMap((id) => roles.get(String(id)) ?? []).sort()
  return partOf('roles', row, { ...row, canInviteRoles }, { stays: builtInRoles.has(String(row.name)) })
}

function permissionOf(row: Row, { roles, rules }: Names): StoredPart {
  const acls = Array.isArray(row.acl_Ids) && row.acl_Ids.length > 0 ? namesOf(row.acl_Ids, rules) : undefined
  return partOf('permissions', row, { ...row, acls }, { role: roles.get(String(row.role_Id)) })
}

function workflowOf(row: Row, { roles }: Names): StoredPart {
  const allowed = Array.isArray(row.allowed_roles) ? namesOf(row.allowed_roles, roles) : row.allowed_roles
  return partOf('workflows', row, { ...row, allowed_roles: allowed }, { isDeleted: row.deletedAt !== null })
}

/** One that is as it came with the program stays out of files: there it would keep the next version's words away. */
function templateOf(row: Row): StoredPart {
  const { subject, body, description, isActive } = row
  const seed = seededTemplates().find(({ type }) => type === row.type)
  const isSeed =
    seed !== undefined &&
    isActive === true &&
    isDeepStrictEqual([subject, body, description], [seed.subject, seed.body, seed.description])
  return partOf('templates', row, row, { isBuiltIn: isSeed })
}

async function pagesOf(db: Reader): Promise<readonly StoredPart[]> {
  const pages = await rows(db, 'svc_Page', '"tenant_Id" is null')
  const blocks = Map.groupBy(await rows(db, 'svc_Block', 'true'), ({ page_Id }) => page_Id)
  const slugs = new Map(pages.map(({ id, slug }) => [id, slug]))
  return pages.map((row) =>
    partOf('pages', row, {
      ...row,
      parent: slugs.get(row.parent_Id) ?? null,
      blocks: blocksOf(blocks.get(row.id) ?? []),
    }),
  )
}

/** The blocks of a page with their ids. */
export async function storedBlocks(db: Reader, page: string): Promise<readonly { id: string; value: Value }[]> {
  const found = await db.any<{ row: Row }>(
    rawQuery(`select to_jsonb(b) as row from "svc_Block" b where "page_Id" = $1 order by id`, [page]),
  )
  return found.map(({ row }) => ({ id: String(row.id), value: blocksOf([row])[0]! }))
}

/** Shared ones. Nothing keeps two users from sharing the same one with a role; the older one counts. */
async function viewsOf(db: Reader, { roles }: Names): Promise<readonly StoredPart[]> {
  const shared = await rows(db, 'svc_View', '"tenant_Id" is null and "role_Id" is not null')
  const views = shared.map((row) => partOf('views', row, { ...row, role: roles.get(String(row.role_Id)) }))
  return [...new Map(views.map((view) => [view.key, view])).values()]
}

function settingsOf(row: Row, { roles }: Names): StoredPart {
  const value = Object.fromEntries(portableSettings.map((name) => [name, row[name] ?? null]))
  const limits = row.session_limits as { readonly roles?: Readonly<Record<string, unknown>> } | null
  const session_limits =
    limits?.roles === undefined
      ? (limits ?? null)
      : {
          ...limits,
          roles: Object.fromEntries(
            Object.entries(limits.roles).flatMap(([id, limit]) => (roles.has(id) ? [[roles.get(id)!, limit]] : [])),
          ),
        }
  return { kind: 'settings', key: 'settings', value: { ...value, session_limits }, id: String(row.id) }
}
