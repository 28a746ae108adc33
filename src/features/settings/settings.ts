import { isForbiddenLiteral } from '../../adapters/public-address.ts'
import { seal, unseal } from '../../adapters/sealing.ts'
import type { Config } from '../../config/config.ts'
import type { Reads } from '../../db/pools.ts'
import { sql } from '../../db/sql.ts'
import { AppError } from '../../errors.ts'
import { imageNames, invalidSettings, type SettingsValues, settingsKeys } from './keys.ts'
import type { SettingsRow } from './store.ts'

export { TenantQuery, tenantOf } from './declarations.ts'
export { imageNames } from './keys.ts'
export { type CurrentSettings, installationSettings, type SettingsRow, tenantsWithSmtp } from './store.ts'

/** Stands for a password that is set; given back unchanged it means "as it is". */
export const passwordMask = '********'

const sealedFor = { purpose: 'settings', owner: 'smtp_pass' } as const

/**
 * The settings that everybody may know: an allow-list, and of the session limits the default alone, as
 * `{ web, mobile }` and once more as `web_session_limit` and `mobile_session_limit`; -1 where there is none.
 */
export function publicSettings(row: SettingsRow): Readonly<Record<string, unknown>> {
  const limits = defaultLimits(row)
  return {
    ...identityOf(row),
    ...valuesOf(row, (key) => key.isPublic),
    session_limits: limits,
    web_session_limit: limits.web,
    mobile_session_limit: limits.mobile,
  }
}

/** Everything but the SMTP password, which is write-only: only whether it is set shows. */
export function administratorSettings(row: SettingsRow): Readonly<Record<string, unknown>> {
  const limits = defaultLimits(row)
  return {
    ...identityOf(row),
    ...valuesOf(row, () => true),
    smtp_pass: row.smtp_pass === null ? null : passwordMask,
    web_session_limit: limits.web,
    mobile_session_limit: limits.mobile,
  }
}

/**
 * The files that the settings name as images, by the names of the images; null where they name none. Everybody may see what
 * the settings show, so there is nothing in them of where a file is stored and whose it is.
 */
export async function imagesOf({ db }: Reads, row: SettingsRow): Promise<Readonly<Record<string, unknown>>> {
  const ids = imageNames.map((name) => row[`${name}_Id`]).filter((id) => typeof id === 'string')
  const files = ids.length === 0 ? [] : await readImages(db, ids)
  const byId = new Map(files.map((file) => [file.id, file]))
  return Object.fromEntries(imageNames.map((name) => [name, byId.get(String(row[`${name}_Id`])) ?? null]))
}

async function readImages(db: Reads['db'], ids: readonly string[]) {
  const rows = await db.any<{ file: { readonly id: string; readonly createdAt: string; readonly updatedAt: string } }>(
    sql.unsafe`
      select jsonb_build_object('id', id, 'title', title, 'description', description, 'filename', filename,
        'originalFilename', "originalFilename", 'type', type, 'size', size, 'width', width, 'height', height,
        'isPublic', "isPublic" is true, 'createdAt', "createdAt", 'updatedAt', "updatedAt") as file
      from "svc_File" where id = any(${sql.array([...ids], 'uuid')})`,
  )
  return rows.map(({ file }) => ({
    ...file,
    createdAt: instant(file.createdAt),
    updatedAt: instant(file.updatedAt),
  }))
}

/** The look of a tenant's mails. */
export function brandingOf(row: SettingsRow): Readonly<Record<string, unknown>> {
  const { project_name, project_color, email_icon_Id, email_signature } = row
  return { project_name, project_color, email_icon_Id, email_signature }
}

/**
 * The values as the table holds them: the password sealed, its mask left out. 400 for an SMTP server that would never
 * be reached; where a name leads is found out when a mail is sent.
 */
export function storedValues(config: Config, values: SettingsValues): SettingsValues {
  if (!config.files.allowPrivateUrlFetch && isForbiddenLiteral(String(values.smtp_host ?? '')))
    throw invalidSettings(['smtp_host: expected a host of the public internet'])
  const { smtp_pass: password, ...others } = values
  if (password === undefined || password === passwordMask) return others
  return { ...others, smtp_pass: password === null ? null : seal(config, sealedFor, String(password)) }
}

/** The SMTP password of a row, for the mailer alone; undefined where none is set. */
export function smtpPassword(config: Config, row: SettingsRow): string | undefined {
  return typeof row.smtp_pass === 'string' ? unseal(config, sealedFor, row.smtp_pass).text : undefined
}

export const settingsNotFound = () => new AppError(404, 'Settings not found')

function identityOf({ id, tenant_Id, createdAt, updatedAt }: SettingsRow) {
  return { id, tenant_Id, createdAt: instant(createdAt), updatedAt: instant(updatedAt) }
}

/** The rows come as the database's own JSON, whose times have microseconds and an offset. */
const instant = (value: unknown): string => new Date(value as string).toISOString()

function valuesOf(row: SettingsRow, shown: (key: { readonly isPublic: boolean }) => boolean) {
  return Object.fromEntries([...settingsKeys].flatMap(([name, key]) => (shown(key) ? [[name, row[name] ?? null]] : [])))
}

function defaultLimits({ session_limits }: SettingsRow): { web: number; mobile: number } {
  const { default: limits } = (session_limits ?? {}) as { default?: { web?: number | null; mobile?: number | null } }
  return { web: limits?.web ?? -1, mobile: limits?.mobile ?? -1 }
}
