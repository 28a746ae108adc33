/**
 * Dynamic variables: strings such as `$CURRENT_USER.email` and `$NOW-DAYS_7` that stand for a value of the caller or
 * the clock, anywhere in a filter, a permission condition or default values.
 */
import type { Catalog } from '../catalog/catalog.ts'
import { isObject, UNRESOLVED } from '../catalog/values.ts'
import { errors } from '../errors.ts'
import type { Access, VariableName } from './access.ts'

export type VariableScope = {
  readonly catalog: Catalog
  readonly access: Access
  /** Read only where a value names the time. */
  readonly now: Date
  /** False for the administrator's own texts (permission rows), which may use every variable. */
  readonly ofRequest: boolean
}

const DAY = 86_400_000
const UNITS: Readonly<Record<string, number>> = {
  YEAR: 365 * DAY,
  MONTH: 30 * DAY,
  WEEK: 7 * DAY,
  DAY,
  HOUR: 3_600_000,
  MINUTE: 60_000,
  SECOND: 1_000,
}
const NOW = /^\$NOW(?:([+-])(YEAR|MONTH|WEEK|DAY|HOUR|MINUTE|SECOND)S?_(\d{1,9}))?$/
const CURRENT = /^\$(CURRENT_(?:USER|ROLE|TENANT|USERROLE|SETTINGS))(?:\.(\w+(?:\.\w+)*))?$/

/** Whether a filter reads a text that begins so as a variable, or as another column. */
export const readsAsVariable = (text: string): boolean => /^\$(NOW|CURRENT_|COL\()/.test(text)

/** The collection whose row a variable is. */
export const rowsOf: Readonly<Record<VariableName, string>> = {
  CURRENT_USER: 'svc_User',
  CURRENT_ROLE: 'svc_Role',
  CURRENT_TENANT: 'svc_Tenant',
  CURRENT_USERROLE: 'svc_UserRole',
  CURRENT_SETTINGS: 'svc_Settings',
}

/**
 * A copy of the value with every variable in it replaced; {@link UNRESOLVED} where there is none. Text that only
 * resembles a variable stays as it is. Throws 403 for hidden fields, and for settings the caller may not read.
 */
export function substitute(value: unknown, scope: VariableScope): unknown {
  if (typeof value === 'string') return value.startsWith('$') ? substituteText(value, scope) : value
  if (Array.isArray(value)) return value.map((entry) => substitute(entry, scope))
  if (!isObject(value)) return value
  const copy: Record<string, unknown> = Object.create(null)
  for (const [key, entry] of Object.entries(value)) copy[key] = substitute(entry, scope)
  return copy
}

/** Default values of a permission row with their variables replaced; null where there is none. */
export function resolveDefaults(
  defaults: Readonly<Record<string, unknown>>,
  scope: VariableScope,
): Readonly<Record<string, unknown>> {
  return unresolvedToNull(substitute(defaults, scope)) as Readonly<Record<string, unknown>>
}

function unresolvedToNull(value: unknown): unknown {
  if (value === UNRESOLVED) return null
  if (Array.isArray(value)) return value.map(unresolvedToNull)
  if (!isObject(value)) return value
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, unresolvedToNull(entry)]))
}

function substituteText(text: string, scope: VariableScope): unknown {
  const now = NOW.exec(text)
  if (now !== null) return shiftedNow(now, scope.now) ?? text
  const current = CURRENT.exec(text)
  if (current === null) return text
  const name = current[1] as VariableName
  const path = current[2]?.split('.') ?? []
  requireReadable(name, path, text, scope)
  return scope.access.variable(name, path) ?? UNRESOLVED
}

/** How many milliseconds after now the moment is that the text means; undefined for every other value. */
export function shiftFromNow(value: unknown): number | undefined {
  const now = typeof value === 'string' ? NOW.exec(value) : null
  return now === null ? undefined : shiftOf(now)
}

function shiftOf([, sign, unit, count]: readonly (string | undefined)[]): number {
  return unit === undefined ? 0 : UNITS[unit]! * Number(count) * (sign === '-' ? -1 : 1)
}

function shiftedNow(match: readonly (string | undefined)[], now: Date): string | undefined {
  const moment = new Date(now.getTime() + shiftOf(match))
  // Beyond the years 1 to 9999 there is no ISO form that the columns take.
  return Number.isNaN(moment.getTime()) || moment.getUTCFullYear() > 9999 || moment.getUTCFullYear() < 1
    ? undefined
    : moment.toISOString()
}

/** A comparison with a variable discloses its value, so a request may use only those that its caller may know. */
function requireReadable(name: VariableName, path: readonly string[], text: string, scope: VariableScope): void {
  if (namesHidden(rowsOf[name], path, scope.catalog)) throw errors.fieldDenied('read', text)
  if (scope.ofRequest && followsRelation(rowsOf[name], path, scope.catalog))
    throw errors.badQuery(`${text}: only stored permissions can follow the relations of the caller`)
  const settings = name === 'CURRENT_SETTINGS' && scope.ofRequest && !scope.access.admin
  if (!settings) return
  const fields = scope.access.grant(rowsOf[name], 'read')?.fields
  const granted = fields === null || fields?.includes('*') || fields?.includes(path[0] ?? '')
  if (granted !== true) throw errors.fieldDenied('read', text)
}

const followsRelation = (collection: string, [first = '', ...more]: readonly string[], catalog: Catalog): boolean =>
  more.length > 0 || catalog.collections.get(collection)?.relations.has(first) === true

function namesHidden(collectionName: string, path: readonly string[], catalog: Catalog): boolean {
  let collection = catalog.collections.get(collectionName)
  for (const segment of path) {
    if (collection?.fields.get(segment)?.hidden) return true
    const relation = collection?.relations.get(segment)
    collection = relation && catalog.collections.get(relation.target)
  }
  return false
}
