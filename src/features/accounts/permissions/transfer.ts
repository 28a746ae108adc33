import { isDeepStrictEqual } from 'node:util'
import { readsLikeBuiltIn } from '../../../access/access.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import { AppError, type FieldProblem } from '../../../errors.ts'
import { commit } from '../../../events/commit.ts'
import type { Actor } from '../../../events/types.ts'
import { shown } from '../../../language/text.ts'
import { isObject } from '../../../query/guards.ts'
import { resolveEnv } from '../../../query/resolve.ts'
import type { PermissionReads, PermissionWrites } from './holders.ts'
import { type AclsById, permissionProblems } from './permissions.ts'
import {
  aclIdsByName,
  aclsById,
  deletePermissions,
  existingRoles,
  insertPermissions,
  insertRoles,
  lockRoles,
  type PermissionContent,
  permissionsOfRoles,
  type RolePermission,
  rolesWithPermissions,
  updatePermissions,
} from './queries.ts'

/**
 * Roles with their permissions as a file. An import replaces the whole permission set of each
 * role it lists and creates the roles that are missing; what it does not list stays. All of it happens or nothing.
 */

const formatVersion = '1.0'

/** The file, as `GET /permissions-export` answers it. */
export async function exportPermissions({ db, clock }: Reads & Clock) {
  const roles = await rolesWithPermissions(db)
  return { version: formatVersion, timestamp: clock().toISOString(), roles }
}

/** The changes that an import of the file would make now. 400 `Invalid import data format` with all problems. */
export async function previewImport(deps: PermissionReads, file: unknown) {
  const wanted = await readImport(deps, file)
  const names = wanted.roles.map((role) => role.name)
  const changes = compare(await permissionsOfRoles(deps.db, names), wanted.permissions)
  const known = await existingRoles(deps.db, names)
  return {
    importVersion: wanted.version,
    importTimestamp: wanted.timestamp,
    changes: {
      newRoles: names.filter((name) => !known.has(name)),
      new: changes.created.map(place),
      modified: changes.updated.map((change) => ({ ...place(change), differences: change.differences })),
      deleted: changes.deleted.map(place),
      unchanged: changes.unchanged.map(place),
    },
  }
}

/** Does what the preview says, in one transaction. 400 as above; then nothing has changed. */
export async function importPermissions(deps: PermissionWrites, actor: Actor, file: unknown) {
  const wanted = await readImport(deps, file)
  const names = wanted.roles.map((role) => role.name)
  const changes = await commit(deps, actor, async (tx) => {
    const known = await lockRoles(tx, names)
    const missing = wanted.roles.filter((role) => !known.has(role.name))
    if (missing.length > 0) await insertRoles(tx, missing)
    const { created, updated, deleted } = compare(await permissionsOfRoles(tx, names), wanted.permissions)
    if (deleted.length > 0)
      await deletePermissions(
        tx,
        deleted.map((permission) => permission.id),
      )
    if (updated.length > 0) await updatePermissions(tx, updated)
    if (created.length > 0) await insertPermissions(tx, created)
    const createdRoles = missing.map((role) => role.name)
    return {
      result: {
        createdRoles,
        created: created.map(place),
        updated: updated.map(place),
        deleted: deleted.map(place),
        errors: [],
      },
    }
  })
  return { message: 'Roles and permissions import completed', changes }
}

type RolePermissionContent = PermissionContent & { readonly role: string }

/** Which permission it is, without what it says. */
const place = ({ role, collection, action }: RolePermissionContent) => ({ role, collection, action })

type PermissionDifference = RolePermission & { readonly differences: readonly string[] }

function compare(stored: readonly RolePermission[], wanted: readonly RolePermissionContent[]) {
  const key = (permission: RolePermissionContent) => JSON.stringify(Object.values(place(permission)))
  const byKey = new Map(stored.map((permission) => [key(permission), permission]))
  const kept = wanted.flatMap((permission): PermissionDifference[] => {
    const before = byKey.get(key(permission))
    return before === undefined ? [] : [{ ...permission, id: before.id, differences: differences(before, permission) }]
  })
  const wantedKeys = new Set(wanted.map(key))
  return {
    created: wanted.filter((permission) => !byKey.has(key(permission))),
    updated: kept.filter((permission) => permission.differences.length > 0),
    unchanged: kept.filter((permission) => permission.differences.length === 0),
    deleted: stored.filter((permission) => !wantedKeys.has(key(permission))),
  }
}

const members = ['fields', 'conditions', 'relConditions', 'defaultValues', 'acl_Ids'] as const

function differences(before: RolePermissionContent, after: RolePermissionContent): readonly string[] {
  return members.filter((member) => !isDeepStrictEqual(before[member], after[member]))
}

type Import = {
  readonly version: unknown
  readonly timestamp: unknown
  readonly roles: readonly { readonly name: string; readonly description: string | null }[]
  readonly permissions: readonly RolePermissionContent[]
}

/** Reads a file completely before anything is changed: its shape, then what every permission in it means. */
async function readImport(deps: PermissionReads, file: unknown): Promise<Import> {
  const { version = null, timestamp = null, roles } = isObject(file) ? file : {}
  if (!Array.isArray(roles)) throw invalid([{ field: 'roles', message: 'must be a list', rule: 'import' }])
  const acls = await aclIdsByName(deps.db)
  const read = readRoles(roles, acls)
  const problems = read.problems.length > 0 ? read.problems : await meaningProblems(deps, read.permissions)
  if (problems.length > 0) throw invalid(problems)
  return { version, timestamp, roles: read.roles, permissions: read.permissions.map(({ permission }) => permission) }
}

/** A permission and where it stands in the file. */
type ListedPermission = { readonly at: string; readonly permission: RolePermissionContent }

function readRoles(list: readonly unknown[], acls: ReadonlyMap<string, string>) {
  const problems: FieldProblem[] = []
  const roles: { name: string; description: string | null }[] = []
  const permissions: ListedPermission[] = []
  const note = (field: string, message: string) => problems.push({ field, message, rule: 'import' })
  for (const [i, entry] of list.entries()) {
    const at = `roles[${i}]`
    const { name, description, permissions: own = [] } = isObject(entry) ? entry : {}
    if (typeof name !== 'string' || name.trim() === '') note(`${at}.name`, 'is required')
    else if (roles.some((role) => role.name === name)) note(`${at}.name`, 'is listed twice')
    else if (!builtInNames.has(name) && readsLikeBuiltIn(name)) note(`${at}.name`, 'reads like a built-in role')
    else if (!Array.isArray(own)) note(`${at}.permissions`, 'must be a list')
    else {
      roles.push({ name, description: typeof description === 'string' ? description : null })
      for (const [n, one] of own.entries())
        permissions.push({ at: `${at}.permissions[${n}]`, permission: contentOf(name, one, acls) })
    }
  }
  for (const twice of repeated(permissions)) note(twice.at, 'is listed twice')
  return { problems, roles, permissions }
}

const builtInNames = new Set(['administrator', 'public', 'user'])

function repeated(permissions: readonly ListedPermission[]): readonly ListedPermission[] {
  const groups = Map.groupBy(permissions, ({ permission }) => JSON.stringify(Object.values(place(permission))))
  return [...groups.values()].flatMap((group) => group.slice(1))
}

function contentOf(role: string, entry: unknown, acls: ReadonlyMap<string, string>): RolePermissionContent {
  const row = isObject(entry) ? entry : {}
  const named = Array.isArray(row.acls) ? row.acls.map((name) => acls.get(shown(name)) ?? shown(name)) : null
  return {
    role,
    collection: row.collection as string,
    action: row.action as string,
    fields: row.fields ?? null,
    conditions: row.conditions ?? null,
    relConditions: row.relConditions ?? null,
    defaultValues: row.defaultValues ?? null,
    acl_Ids: named ?? row.acl_Ids ?? null,
  }
}

async function meaningProblems(
  deps: PermissionReads,
  listed: readonly ListedPermission[],
): Promise<readonly FieldProblem[]> {
  const ids = listed.flatMap(({ permission }) => (Array.isArray(permission.acl_Ids) ? permission.acl_Ids : []))
  const acls: AclsById = new Map((await aclsById(deps.db, ids.map(String))).map((acl) => [acl.id, acl]))
  const catalog = await deps.catalog.reloadIfStale()
  return listed.flatMap(({ at, permission }) =>
    permissionProblems(catalog, resolveEnv(deps), permission, acls).map((found) => ({
      ...found,
      field: `${at}.${found.field}`,
    })),
  )
}

function invalid(problems: readonly FieldProblem[]): AppError {
  return new AppError(400, 'Invalid import data format', {
    code: 'VALIDATION_ERROR',
    details: { code: 'VALIDATION_ERROR', errors: problems },
  })
}
