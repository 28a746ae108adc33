import type { Catalog, Collection, Field } from '../../catalog/catalog.ts'
import type { Config } from '../../config.ts'
import { AppError, errors, type FieldProblem } from '../../errors.ts'
import type { Access, Grant } from '../../query/access.ts'
import type { ParamValue } from '../../query/sql.ts'
import { readValue, type ValueType } from '../../query/values.ts'
import { resolveDefaults } from '../../query/variables.ts'

/** A cell of a row that is about to be written: its field and the value as a parameter of its type. */
export type Cell = { readonly field: Field; readonly value: ParamValue; readonly pgType: string }

export type WriteAction = 'create' | 'update'

export type PayloadContext = {
  readonly catalog: Catalog
  readonly collection: Collection
  readonly access: Access
  readonly action: WriteAction
  readonly config: Config
  readonly now: Date
}

/**
 * Reads one payload into cells: unknown keys and VIRTUAL columns are dropped, keys the caller may not write are
 * refused (403), values are checked against their field's type and rules and all problems reported together (400).
 * The server's own columns (timestamps, user track) are not the payload's to set unless named by an administrator.
 */
export function readPayload(context: PayloadContext, payload: unknown): readonly Cell[] {
  if (payload === null || typeof payload !== 'object' || Array.isArray(payload))
    throw errors.badBody('Request body must be an object')
  const { collection, access, action } = context
  const grant = access.admin ? undefined : access.grant(collection.name, action)
  if (!access.admin && grant === undefined) throw errors.actionDenied(action, collection.name)
  const cells = new Map<string, Cell>()
  const problems: FieldProblem[] = []
  const given = fieldEntries(collection, payload as Record<string, unknown>)
  for (const [field] of given)
    if (grant !== undefined && !mayWrite(context, grant, field)) throw errors.fieldDenied(action, field.name)
  for (const [field, raw] of [...defaults(context, grant), ...given]) {
    const cell = readCell(field, raw, problems)
    if (cell !== undefined) cells.set(field.name, cell)
  }
  if (action === 'create') reportMissing(collection, cells, problems)
  if (problems.length > 0) throw errors.validation(problems)
  return [...stamps(context, cells).values()]
}

/** Keys of the payload that are fields; a relation's key with a plain id (or null) means its foreign key. */
function fieldEntries(collection: Collection, payload: Record<string, unknown>): [Field, unknown][] {
  const entries: [Field, unknown][] = []
  for (const [key, value] of Object.entries(payload)) {
    const field = collection.fields.get(key)
    if (field !== undefined && field.generated === undefined && value !== undefined) entries.push([field, value])
    else if (collection.relations.has(key)) entries.push([foreignKeyOf(collection, key, value), value])
  }
  return entries
}

function foreignKeyOf(collection: Collection, key: string, value: unknown): Field {
  const relation = collection.relations.get(key)!
  const isReference = relation.kind === 'belongsTo' && (value === null || typeof value !== 'object')
  if (!isReference)
    throw new AppError(400, 'Validation failed for relational data', {
      details: [{ field: key, message: 'only the id of a related item can be given' }],
    })
  return collection.fields.get(relation.foreignKey)!
}

const privilegeFields = new Set(['role_Id', 'tenant_Id', 'userCreated_Id', 'userUpdated_Id', 'emailVerified'])

/** PROTECT_PRIVILEGE_FIELDS and ALLOW_PASSWORD_WRITES (spec/permissions.md §5). */
function mayWrite({ collection, config }: PayloadContext, grant: Grant, field: Field): boolean {
  const specs = grant.fields ?? []
  const named = specs.includes(field.name)
  if (collection.name === 'svc_User' && field.name === 'password') return named && config.access.allowPasswordWrites
  if (field.primaryKey || named) return true
  const isPrivilege = field.hidden || privilegeFields.has(field.name)
  return (specs.includes('*') || specs.includes('*.*')) && !(isPrivilege && config.access.protectPrivilegeFields)
}

/** Values that the permission row puts under the payload; they need no grant of their own. */
function defaults({ catalog, collection, access, now }: PayloadContext, grant: Grant | undefined): [Field, unknown][] {
  if (grant?.defaultValues == null) return []
  const values = resolveDefaults(grant.defaultValues, { catalog, access, now, ofRequest: false })
  return Object.entries(values).flatMap(([key, value]): [Field, unknown][] => {
    const field = collection.fields.get(key)
    return field === undefined ? [] : [[field, value]]
  })
}

function readCell(field: Field, raw: unknown, problems: FieldProblem[]): Cell | undefined {
  if (raw === null) {
    if (!field.nullable) problems.push({ field: field.name, message: 'is required', value: null, rule: 'notNull' })
    return { field, value: null, pgType: field.pgType }
  }
  try {
    const { value, pgType } = readValue(raw, field as ValueType, field.name)
    problems.push(...ruleProblems(field, value))
    return { field, value, pgType }
  } catch (error) {
    if (!(error instanceof AppError) || error.status !== 400) throw error
    problems.push({ field: field.name, message: reason(error), value: shown(field, raw), rule: 'type' })
    return undefined
  }
}

/** "age: expected an integer" without the name, which the error body puts in front again. */
function reason(error: AppError): string {
  const text = typeof error.details === 'string' ? error.details : error.message
  return text.slice(text.indexOf(': ') + 1).trim()
}

function shown(field: Field, raw: unknown): unknown {
  if (field.hidden) return undefined
  return typeof raw === 'string' && raw.length > 200 ? `${raw.slice(0, 200)}…` : raw
}

/** The limits a column has by itself; what PostgreSQL would refuse is named here with its field. */
function ruleProblems(field: Field, value: ParamValue): FieldProblem[] {
  const problem = (message: string, rule: string) => [
    { field: field.name, message, value: field.hidden ? undefined : value, rule },
  ]
  if (field.enumValues !== undefined && !field.enumValues.includes(value as string))
    return problem(`must be one of ${field.enumValues.join(', ')}`, 'enum')
  const length = /^varchar\((\d+)\)$/.exec(field.pgType)?.[1]
  if (length !== undefined && [...(value as string)].length > Number(length))
    return problem(`must be at most ${length} characters long`, 'len')
  return []
}

function reportMissing(collection: Collection, cells: ReadonlyMap<string, Cell>, problems: FieldProblem[]): void {
  const reported = new Set(problems.map((problem) => problem.field))
  for (const field of collection.fields.values()) {
    const filled =
      field.nullable || field.default !== undefined || field.generated !== undefined || cells.has(field.name)
    if (!filled && !reported.has(field.name))
      problems.push({ field: field.name, message: 'is required', rule: 'notNull' })
  }
}

/** Columns the server fills in: user track and defaults that mean the caller. Given values of administrators stay. */
function stamps({ collection, access, action }: PayloadContext, cells: Map<string, Cell>): Map<string, Cell> {
  const stamp = (name: string, value: string | undefined) => {
    const field = collection.fields.get(name)
    if (field !== undefined && value !== undefined) cells.set(name, { field, value, pgType: field.pgType })
  }
  if (collection.usertrack) stamp('userUpdated_Id', access.userId)
  if (action === 'update') return cells
  if (collection.usertrack && !cells.has('userCreated_Id')) stamp('userCreated_Id', access.userId)
  for (const field of collection.fields.values()) {
    if (cells.has(field.name)) continue
    if (field.default?.kind === 'current_user') stamp(field.name, access.userId)
    if (field.default?.kind === 'current_tenant') stamp(field.name, access.tenantId)
  }
  return cells
}
