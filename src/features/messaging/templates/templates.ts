import { TemplateError } from '../../../adapters/liquid.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import { type Reader, sql, type Tx } from '../../../db/sql.ts'
import { errors, type FieldProblem } from '../../../errors.ts'
import type { Cell } from '../../data/items/items.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import {
  builtInTemplates,
  defaultTemplate,
  lookupNames,
  seededTypes,
  type Template,
  type TemplateType,
} from './built-in.ts'
import type { MailRenderer, RenderResult } from './renderer.ts'
import { sampleVariables } from './variables.ts'

export type { TemplateType } from './built-in.ts'
export { type MailRenderer, oneLine, openRenderer } from './renderer.ts'
export {
  commonVariables,
  inlineImages,
  type LogoReads,
  type MailLogo,
  type Recipient,
  readLogo,
  type TenantRow,
  withEmbeddedLogo,
  withSynonyms,
} from './variables.ts'

type MailContents = {
  /** Of svc_Template; an extension may name one of its own. */
  readonly type: string
  readonly tenantId: string | null
  readonly variables: Readonly<Record<string, unknown>>
  /** The same without secrets: what the recorded subject is made from. */
  readonly recordedVariables: Readonly<Record<string, unknown>>
  /** Instead of the template's. */
  readonly subject: string | undefined
}

/**
 * A mail by the active template of its tenant, else of the installation, else by the built-in one. A stored template
 * that fails must not lose the mail: then it is the built-in one too, and the log says why.
 *
 * @throws {TemplateError} when the built-in template or the given subject fails, or there is none of the type
 */
export async function renderMail(deps: Reads & Logs & MailRenderer, contents: MailContents): Promise<RenderResult> {
  const { type, variables, tenantId } = contents
  const stored = await activeTemplate(deps.db, lookupNames(type, variables), tenantId)
  const builtIn = builtInTemplate(type)
  const first = stored ?? builtIn
  if (first === undefined) throw new TemplateError(`there is no active template of the type ${type}`)
  if (stored === undefined || builtIn === undefined) return render(deps, first, contents)
  try {
    return await render(deps, stored, contents)
  } catch (error) {
    if (!(error instanceof TemplateError)) throw error
    const about = { templateId: stored.id, type: stored.type, tenantId, reason: error.message }
    deps.log.warn(about, 'a stored template failed: the built-in one is used instead')
    return render(deps, builtIn, contents)
  }
}

/** The subject before its template is known. */
export function subjectOf(type: string): string {
  return builtInTemplate(type)?.subject ?? type
}

/** Whether a mail of the type can be rendered at all, as things are now. */
export async function hasTemplate(db: Reader, type: string, tenantId: string | null): Promise<boolean> {
  return builtInTemplate(type) !== undefined || (await activeTemplate(db, [type], tenantId)) !== undefined
}

function builtInTemplate(type: string): Template | undefined {
  return Object.hasOwn(builtInTemplates, type) ? builtInTemplates[type as TemplateType] : defaultTemplate(type)
}

function render(
  { renderer }: MailRenderer,
  template: Template,
  { variables, recordedVariables, subject }: MailContents,
) {
  const { subject: own, body } = template
  return renderer.render({ template: { subject: subject ?? own, body }, variables, recordedVariables })
}

type StoredTemplate = Template & {
  readonly id: string
  readonly type: string
  readonly tenantId: string | null
}

/**
 * The active template for a mail: the tenant's own before the installation's, and of each the
 * first of the names that has one.
 */
async function activeTemplate(
  db: Reader,
  names: readonly string[],
  tenantId: string | null,
): Promise<StoredTemplate | undefined> {
  return db.maybeOne<StoredTemplate>(sql.unsafe`
    select id::text, type, subject, body, "tenant_Id"::text as "tenantId" from "svc_Template"
    where type = any(${sql.array([...names], 'text')}) and "isActive"
      and ("tenant_Id" is null or "tenant_Id" = ${tenantId}::uuid)
    order by "tenant_Id" is null, array_position(${sql.array([...names], 'text')}, type::text) limit 1`)
}

export async function templateById(db: Reader, id: string): Promise<StoredTemplate | undefined> {
  return db.maybeOne<StoredTemplate>(sql.unsafe`
    select id::text, type, subject, body, "tenant_Id"::text as "tenantId" from "svc_Template" where id = ${id}::uuid`)
}

/** Characters. */
export const longestCell = { subject: 250, body: 256 * 1024 }

/**
 * Checks a row of svc_Template before it is written. The renderer of mails renders subject and body with sample data,
 * and its refusal is the answer.
 *
 * @throws {AppError} 400 that names the fields
 */
export async function checkTemplateCells(
  deps: Clock & CurrentSettings & MailRenderer,
  cells: readonly Cell[],
): Promise<void> {
  const problems: FieldProblem[] = []
  for (const { field, value } of cells) {
    const message = typeof value === 'string' ? await problemOf(deps, field.name, value) : undefined
    if (message !== undefined) problems.push({ field: field.name, message, rule: 'isTemplate' })
  }
  if (problems.length > 0) throw errors.validation(problems)
}

async function problemOf(
  deps: Clock & CurrentSettings & MailRenderer,
  name: string,
  value: string,
): Promise<string | undefined> {
  if (name === 'type') return /^[a-z][\w-]{0,63}$/i.test(value) ? undefined : 'is not the name of a type'
  if (name !== 'subject' && name !== 'body') return undefined
  if (value.length > longestCell[name]) return `has more than ${longestCell[name]} characters`
  if (name === 'subject' && /[\p{Cc}\u2028\u2029]/u.test(value)) return 'is not one line'
  try {
    await deps.renderer.render({ template: { subject: '', body: '', [name]: value }, variables: sampleVariables(deps) })
    return undefined
  } catch (error) {
    if (error instanceof TemplateError) return error.message
    throw error
  }
}

/*
 * The rows of svc_Template that every installation starts with. Their ids are known, so that one
 * that nobody has changed can follow the built-in text, and one that somebody has deleted stays deleted.
 */

const seeds = seededTypes.map((type, n) => {
  const { subject, body, description } = defaultTemplate(type)!
  return { id: `7e3b1a70-0000-4000-8000-${String(n + 1).padStart(12, '0')}`, type, subject, body, description }
})

/** Once, by the migration that makes the table: a row of every type that has no global one. */
export const insertSeedsSql = `insert into "svc_Template" (id, type, subject, body, description)
  select * from jsonb_to_recordset($1::jsonb) as s (id uuid, type text, subject text, body text, description text)
  on conflict do nothing`

export const seedsJson = (): string => JSON.stringify(seeds)

/** With every setup: a seeded row that was never changed since becomes what is built in now. */
export async function renewSeededTemplates(tx: Tx): Promise<void> {
  await tx.any(sql.unsafe`
    update "svc_Template" t set subject = s.subject, body = s.body, description = s.description
    from jsonb_to_recordset(${seedsJson()}::jsonb) as s (id uuid, subject text, body text, description text)
    where t.id = s.id and t."updatedAt" = t."createdAt"
      and (t.subject, t.body, t.description) is distinct from (s.subject, s.body, s.description)`)
}
