import { hash } from 'node:crypto'
import { errors } from '../../errors.ts'
import { oncePer } from '../../once-per.ts'
import type { Access, Grant, VariableName } from '../../query/access.ts'
import { grantOf, isNone } from './grants.ts'
import { type Related, type RelatedPath, relatedPath, variableKey, variablesIn } from './related.ts'
import type { AccessRules, Role } from './store.ts'

/** The administrator role is known by its name, which nobody can rename, create twice or delete. */
export const administratorRole = 'administrator'
export const publicRole = 'public'

export type Subject = {
  readonly role: Role
  readonly userId: string | undefined
  readonly tenantId: string | undefined
  /** Rows behind `$CURRENT_USER.x`, `$CURRENT_TENANT.x`, …; wire forms, without hidden fields. */
  readonly rows: Partial<Record<VariableName, Readonly<Record<string, unknown>>>>
  /** What {@link relatedPathsOf} asked for. */
  readonly related: Related
}

/** What a subject may do, compiled from the stored rules once per role and change (spec/permissions.md §3). */
export function accessOf(rules: AccessRules, subject: Subject): Access {
  const { grants, closed, isPersonal, isLasting } = compiledRole(rules, subject.role.id)
  const shared = once(() => digest(sharedOf(rules, subject)))
  const personal = once(() => digest(`${shared()} ${subject.userId ?? ''} ${rowsOf(subject)}`))
  return {
    admin: subject.role.name === administratorRole,
    roleId: subject.role.id,
    userId: subject.userId,
    tenantId: subject.tenantId,
    tenantSpecific: subject.role.isTenantSpecific,
    identity: (namesVariables) =>
      isPersonal || namesVariables ? `${personal()} ${digestOfRow(subject.rows.CURRENT_SETTINGS ?? none)}` : shared(),
    meaning: () => (isLasting ? (isPersonal ? personal() : shared()) : undefined),
    grant: (collection, action) => grants.get(`${action} ${collection}`),
    closed,
    variable: (name, path) => variableOf(rules, subject, name, path),
  }
}

/** The variables over relations in the rules of a role: what must be loaded before its access is made. */
export function relatedPathsOf(rules: AccessRules, roleId: string): readonly RelatedPath[] {
  return compiledRole(rules, roleId).paths
}

/** Collections with a read permission that has a row rule. */
export function collectionsWithRowRules(rules: AccessRules): readonly string[] {
  const reads = [...rules.permissions.values()].flat().filter(({ action }) => action === 'read')
  const ruled = reads.filter((row) => !isNone(grantOf(row, rules)?.conditions))
  return [...new Set(ruled.map(({ collection }) => collection))]
}

function variableOf(rules: AccessRules, subject: Subject, name: VariableName, path: readonly string[]): unknown {
  const row = subject.rows[name]
  if (path.length === 0) return ownIds(subject)[name] ?? row?.id
  const [column] = path as [string]
  if (path.length === 1 && row !== undefined && Object.hasOwn(row, column)) return row[column]
  const key = variableKey({ name, path })
  const isKnown = relatedPathsOf(rules, subject.role.id).some((known) => known.key === key)
  if (!isKnown && relatedPath(rules.catalog, { name, path }) !== undefined)
    throw errors.badQuery(`$${key}: only stored permissions can follow the relations of the caller`)
  return subject.related.get(key)
}

function ownIds({ userId, role, tenantId }: Subject): Partial<Record<VariableName, string | undefined>> {
  return { CURRENT_USER: userId, CURRENT_ROLE: role.id, CURRENT_TENANT: tenantId }
}

/** Roles with the same rules have the same digest in every process. */
function sharedOf(rules: AccessRules, { role, tenantId }: Subject): string {
  return `${role.id} ${tenantId ?? ''} ${role.name} ${role.isTenantSpecific} ${compiledRole(rules, role.id).digest}`
}

/** What variables stand for, but the settings, which may change while the subject stays. */
function rowsOf({ rows, related }: Subject): string {
  const { CURRENT_USER, CURRENT_ROLE, CURRENT_TENANT, CURRENT_USERROLE } = rows
  const values = [CURRENT_USER, CURRENT_ROLE, CURRENT_TENANT, CURRENT_USERROLE, [...related]]
  return JSON.stringify(values)
}

type Row = Readonly<Record<string, unknown>>

/** Rows are never changed: what they stand for is read anew with another object. */
const digestOfRow = oncePer((row: Row) => digest(JSON.stringify(row)))
const none: Row = {}

const digest = (text: string): string => hash('sha256', text, 'base64url')

function once<T extends NonNullable<unknown>>(make: () => T): () => T {
  let made: T | undefined
  return () => (made ??= make())
}

type CompiledRole = {
  readonly grants: ReadonlyMap<string, Grant>
  readonly closed: ReadonlySet<string>
  readonly paths: readonly RelatedPath[]
  readonly digest: string
  /** Whether a rule names a variable of the caller. */
  readonly isPersonal: boolean
  /** Whether no rule names what changes while the caller stays: the time, the settings. */
  readonly isLasting: boolean
}

const compiledRoles = oncePer((_rules: AccessRules) => new Map<string, CompiledRole>())

function compiledRole(rules: AccessRules, roleId: string): CompiledRole {
  const byRole = compiledRoles(rules)
  const known = byRole.get(roleId) ?? compileRole(rules, roleId)
  byRole.set(roleId, known)
  return known
}

function compileRole(rules: AccessRules, roleId: string): CompiledRole {
  const grants = new Map<string, Grant>()
  const closed = new Set<string>()
  for (const row of rules.permissions.get(roleId) ?? []) {
    const grant = grantOf(row, rules)
    if (grant !== undefined) grants.set(`${row.action} ${row.collection}`, grant)
    else if (row.action === 'read') closed.add(row.collection)
  }
  const text = JSON.stringify([...grants, ...closed])
  return {
    grants,
    closed,
    paths: pathsIn(rules, [...grants.values()]),
    digest: digest(text),
    isPersonal: text.includes('$CURRENT_'),
    isLasting: !text.includes('$NOW') && !text.includes('$CURRENT_SETTINGS'),
  }
}

function pathsIn({ catalog }: AccessRules, grants: readonly Grant[]): readonly RelatedPath[] {
  const values = grants.flatMap(({ conditions, relConditions, defaultValues }) => [
    conditions,
    relConditions,
    defaultValues,
  ])
  const paths = values
    .flatMap((value) => variablesIn(value, catalog))
    .flatMap((variable) => relatedPath(catalog, variable) ?? [])
  return [...new Map(paths.map((path) => [path.key, path])).values()]
}
