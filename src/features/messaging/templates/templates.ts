import { lstatSync, readFileSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import { TemplateError } from '../../../adapters/liquid.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { InlineImage } from '../../../adapters/mailer.ts'
import { ConfigError } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import { type Reader, sql, type Tx } from '../../../db/sql.ts'
import { errors, type FieldProblem } from '../../../errors.ts'
import { withoutLastSlashes } from '../../../language/text.ts'
import { isObject } from '../../../query/guards.ts'
import type { Cell } from '../../data/items/items.ts'
import { type AssetWrites, contentsOf, settingsAsset, wholeOf } from '../../files/assets/assets.ts'
import type { CurrentSettings, SettingsRow } from '../../settings/settings.ts'
import {
  builtInTemplates,
  defaultTemplate,
  lookupNames,
  seededTypes,
  type Template,
  type TemplateType,
} from './built-in.ts'
import type { MailRenderer, RenderResult } from './renderer.ts'

export type { TemplateType } from './built-in.ts'
export { type MailRenderer, oneLine, openRenderer } from './renderer.ts'

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
  return db.maybeOne<StoredTemplate>(sql`
    select id::text, type, subject, body, "tenant_Id"::text as "tenantId" from "svc_Template"
    where type = any(${sql.array(names, 'text')}) and "isActive"
      and ("tenant_Id" is null or "tenant_Id" = ${tenantId}::uuid)
    order by "tenant_Id" is null, array_position(${sql.array(names, 'text')}, type::text) limit 1`)
}

export async function templateById(db: Reader, id: string): Promise<StoredTemplate | undefined> {
  return db.maybeOne<StoredTemplate>(sql`
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
 * that is as it was made can follow the built-in text, and a deleted one stays deleted.
 */

const seeds = seededTypes.map((type, n) => {
  const { subject, body, description } = defaultTemplate(type)!
  return { id: `7e3b1a70-0000-4000-8000-${String(n + 1).padStart(12, '0')}`, type, subject, body, description }
})

/** Once, by the migration that makes the table: a row of every type that has no global one. */
export const insertSeedsSql = `insert into "svc_Template" (id, type, subject, body, description)
  select * from jsonb_to_recordset($1::jsonb) as s (id uuid, type text, subject text, body text, description text)
  on conflict do nothing`

/** The templates that every installation begins with, as they are built in now. */
export const seededTemplates = (): readonly (Template & {
  readonly type: string
  readonly description: string | null
})[] => seeds

export const seedsJson = (): string => JSON.stringify(seeds)

/** With every setup: a seeded row that was never changed since becomes what is built in now. */
export async function renewSeededTemplates(tx: Tx): Promise<void> {
  await tx.any(sql`
    update "svc_Template" t set subject = s.subject, body = s.body, description = s.description
    from jsonb_to_recordset(${seedsJson()}::jsonb) as s (id uuid, subject text, body text, description text)
    where t.id = s.id and t."updatedAt" = t."createdAt"
      and (t.subject, t.body, t.description) is distinct from (s.subject, s.body, s.description)`)
}

/** The recipient of a mail, as templates see them. */
export type Recipient = {
  readonly firstName: string
  readonly lastName: string | null
  readonly email: string
  readonly phone: string | null
}

/** A tenant's row. Templates see its name, logo, website, address, phone and email. */
export type TenantRow = Readonly<Record<string, unknown>>

/** The variables that every template has. Missing values are empty strings, so that templates need no test for null. */
export function commonVariables(
  settings: SettingsRow,
  email: string,
  person: Recipient | undefined,
  tenant: TenantRow | undefined,
  now: Date,
) {
  const firstName = person?.firstName ?? ''
  const lastName = person?.lastName ?? ''
  const fullName = `${firstName} ${lastName}`.trim()
  return {
    ...projectVariables(settings),
    ...timeVariables(settings, now),
    name: firstName,
    user: { firstName, lastName, fullName, email, phone: person?.phone ?? '' },
    tenant: picked(tenant ?? {}, ['name', 'logo', 'website', 'address', 'phone', 'email']),
  }
}

/** The recipient that a mail describes itself; undefined where it does not. */
export function recipientOf({ user }: { readonly user?: Readonly<Record<string, unknown>> }): Recipient | undefined {
  return user && picked(user, ['firstName', 'lastName', 'email', 'phone'])
}

/** The variables `user` and `tenant` with what a mail says of them itself. */
export function withAbout(
  known: { readonly user: object; readonly tenant: object },
  about: { readonly user?: unknown; readonly tenant?: unknown },
) {
  return { user: merged(known.user, about.user), tenant: merged(known.tenant, about.tenant) }
}

/** Adds the other vocabulary's names, and when the secret expires, to what has not said so itself. */
export function withSynonyms(
  variables: Readonly<Record<string, unknown>>,
  settings: SettingsRow,
  expiresAt: Date | undefined,
): Readonly<Record<string, unknown>> {
  return {
    magicLinkUrl: variables.magicLink ?? '',
    code: variables.magicCode || variables.resetPasswordCode || '',
    loginUrl: variables.loginLink ?? '',
    expiresAt: expiresAt?.toISOString() ?? '',
    expirationDate: expiresAt === undefined ? '' : timeVariables(settings, expiresAt).currentDate,
    ...variables,
  }
}

function projectVariables(settings: SettingsRow) {
  const texts = picked(settings, ['project_name', 'project_color', 'project_url', 'app_url', 'email_signature'])
  return {
    ...texts,
    project_color: texts.project_color || '#663399',
    logo_url: logoAddress,
    loginLink: texts.app_url ? `${withoutLastSlashes(texts.app_url)}/login` : '',
  }
}

/** In the time zone and form of the settings. */
function timeVariables(settings: SettingsRow, now: Date) {
  const part = partsOf(now, textIn(settings, 'timezone') || 'UTC')
  const form = textIn(settings, 'date_format') || 'YYYY-MM-DD'
  const date = form.replace(/YYYY|YY|MM|DD/g, (token) => part[token] ?? token)
  return { currentDate: date, currentTime: `${part.HH}:${part.mm}`, currentYear: part.YYYY }
}

function partsOf(now: Date, timeZone: string): Record<string, string> {
  const parts = clockIn(timeZone).formatToParts(now)
  const get = (type: Intl.DateTimeFormatPartTypes) => parts.find((part) => part.type === type)?.value ?? ''
  const year = get('year')
  return { YYYY: year, YY: year.slice(-2), MM: get('month'), DD: get('day'), HH: get('hour'), mm: get('minute') }
}

/** A time zone that the settings have wrong must not stop a mail: then it is UTC. */
function clockIn(timeZone: string): Intl.DateTimeFormat {
  const options = { hourCycle: 'h23', dateStyle: 'short', timeStyle: 'short' } as const
  try {
    return new Intl.DateTimeFormat('sv-SE', { ...options, timeZone })
  } catch (error) {
    if (error instanceof RangeError) return new Intl.DateTimeFormat('sv-SE', { ...options, timeZone: 'UTC' })
    throw error
  }
}

function picked<const Key extends string>(
  row: Readonly<Record<string, unknown>>,
  keys: readonly Key[],
): Record<Key, string> {
  return Object.fromEntries(keys.map((key) => [key, textIn(row, key)])) as Record<Key, string>
}

function textIn(row: Readonly<Record<string, unknown>>, key: string): string {
  const value = row[key]
  return value === null || value === undefined ? '' : String(value)
}

const samplePerson = { firstName: 'Ada', lastName: 'Lovelace', email: 'ada@example.com', phone: '+44 20 7946 0000' }
const sampleTenant = {
  name: 'Analytical Engines',
  logo: '',
  website: 'https://engines.example.com',
  address: '12 St James’s Square, London',
  phone: '+44 20 7946 0001',
  email: 'office@engines.example.com',
}
const sampleToken = 'sample'
const sampleLifetimeMs = 3_600_000

/**
 * Every variable that a template may use, as in a real mail, with the settings as they are. `data` takes the
 * place of what it names, within `user` and `tenant` too.
 */
export function sampleVariables(
  deps: Clock & CurrentSettings,
  type = '',
  tenantId?: string,
  data: Readonly<Record<string, unknown>> = {},
): Readonly<Record<string, unknown>> {
  const settings = deps.settings.current(tenantId)
  const now = deps.clock()
  const base = withoutLastSlashes(String(settings.app_url ?? 'https://app.example.com'))
  const variables = {
    ...commonVariables(settings, samplePerson.email, samplePerson, sampleTenant, now),
    magicLink: type === 'magicLinkCode' ? '' : `${base}/auth/magiclink/${sampleToken}`,
    magicCode: type === 'magicLinkCode' ? 'H7K2M4QX' : '',
    resetPasswordLink: `${base}/auth/reset-password/${sampleToken}`,
    resetUrl: `${base}/auth/reset-password/${sampleToken}`,
    resetPasswordCode: '',
    verificationLink: `${base}/auth/verify-email/${sampleToken}`,
    verifyUrl: `${base}/auth/verify-email/${sampleToken}`,
    oldEmail: 'ada@old.example.com',
    newEmail: 'ada@new.example.com',
    inviteLink: `${base}/accept-invite?token=${sampleToken}`,
    inviterName: 'Charles Babbage',
    existing: type === 'inviteExistingUser' ? 'true' : '',
    notification_title: 'Your report is ready',
    notification_message: 'It has 12 pages.',
    action_url: base,
    action_text: 'Read it',
  }
  const filled = withSynonyms({ ...variables, ...data }, settings, new Date(now.getTime() + sampleLifetimeMs))
  return { ...filled, ...withAbout(variables, data) }
}

function merged(sample: object, given: unknown): unknown {
  return isObject(given) ? { ...sample, ...given } : (given ?? sample)
}

/** A PNG that mails show where the settings name no icon. */
export type MailLogo = { readonly mailLogo: Buffer }

/** The value of `logo_url`: the image that comes with the mail. */
const logoAddress = 'cid:logo'

/** Bytes; it is part of every mail. */
const largest = 256 * 1024
const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])

/**
 * The PNG at `templates/logo/logo.png` of the extensions, else the default logo. It goes to
 * strangers, so nothing may lead elsewhere: a link is refused.
 *
 * @throws {ConfigError} for a link, for what is no PNG and for what is too large
 */
export function readLogo(extensionsDir: string): Buffer {
  const path = join('templates', 'logo', 'logo.png')
  const file = join(extensionsDir, path)
  const found = lstatSync(file, { throwIfNoEntry: false })
  if (found === undefined) return readFileSync(new URL('./logo.png', import.meta.url))
  const isItself = found.isFile() && realpathSync(file) === join(realpathSync(extensionsDir), path)
  if (!isItself) throw new ConfigError(`EXTENSIONS_DIR: ${file} is a link or no file`)
  if (found.size > largest) throw new ConfigError(`EXTENSIONS_DIR: ${file} is larger than ${largest} bytes`)
  const image = readFileSync(file)
  if (!image.subarray(0, signature.length).equals(signature))
    throw new ConfigError(`EXTENSIONS_DIR: ${file} is not a PNG`)
  return image
}

/** The capabilities to find the logo of a mail. */
export type LogoReads = MailLogo & AssetWrites

/** The images that must go with the HTML so that its logo shows. */
export async function inlineImages(
  deps: LogoReads,
  html: string,
  tenantId: string | undefined,
): Promise<readonly InlineImage[]> {
  return html.includes(logoAddress) ? [{ cid: 'logo', ...(await logoOf(deps, tenantId)) }] : []
}

/** The same HTML for a browser, which knows no parts of mails. */
export async function withEmbeddedLogo(deps: LogoReads, html: string, tenantId: string | undefined): Promise<string> {
  if (!html.includes(logoAddress)) return html
  const { contentType, content } = await logoOf(deps, tenantId)
  return html.replaceAll(logoAddress, `data:${contentType};base64,${content.toString('base64')}`)
}

type Logo = Omit<InlineImage, 'cid'>

/** A mail is worth more than its logo: where the settings' icon cannot be had, it is the PNG. */
async function logoOf(deps: LogoReads, tenantId: string | undefined): Promise<Logo> {
  const icon = await iconOf(deps, tenantId).catch((error: unknown) => {
    deps.log.warn({ err: error, tenantId }, 'a mail has the default logo: the icon of the settings could not be read')
    return undefined
  })
  return icon ?? { contentType: 'image/png', content: deps.mailLogo }
}

/** Types that every mail program shows. */
const usualTypes = new Set(['image/png', 'image/jpeg', 'image/gif'])
/** Twice the size in which a mail shows it, for fine screens. */
const smaller = { width: 480, height: 240, fit: 'inside', withoutEnlargement: true, format: 'png' } as const

/** The file that the settings name as `email_icon_Id`, made smaller where it is large or of another format. */
async function iconOf(deps: LogoReads, tenantId: string | undefined): Promise<Logo | undefined> {
  const icon = await settingsAsset(deps, 'email_icon', tenantId)
  if (icon === undefined) return undefined
  const contents = contentsOf(deps)
  const isFit = icon.typeProven && usualTypes.has(icon.type) && icon.size <= largest
  const content = await wholeOf(
    isFit ? contents.original(icon) : await contents.variant(icon, smaller, { turn: 'mail', gone: undefined }),
  )
  if (content === undefined) throw new Error('its content is gone')
  return { contentType: isFit ? icon.type : 'image/png', content }
}
