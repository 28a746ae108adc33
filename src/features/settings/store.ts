import type { Logger } from 'pino'
import type { Listener } from '../../db/listener.ts'
import { inRounds } from '../../db/rounds.ts'
import { type Reader, sql } from '../../db/sql.ts'
import { oncePer } from '../../language/once.ts'

/** A row of svc_Settings in its wire form. */
export type SettingsRow = Readonly<Record<string, unknown>> & { readonly id: number; readonly tenant_Id: string | null }

export type SettingsStore = {
  /**
   * The installation's settings, overridden key by key by the tenant's own; the same object until they
   * are read again.
   */
  current(tenantId?: string): SettingsRow
  /** The tenant's own row, or the installation's for null, as it is: nothing is inherited. */
  own(tenantId: string | null): SettingsRow | undefined
  /** The address of the frontend: the installation's, compared exactly, or a tenant's, in any case. */
  byAppUrl(appUrl: string): SettingsRow | undefined
  /** Every row as it is. */
  all(): readonly SettingsRow[]
  /** Called after every reading, whatever it brought. */
  onChange(handler: () => void): void
  reload(): Promise<void>
}

/** The settings as they are now. */
export type CurrentSettings = { readonly settings: SettingsStore }

/** Loads every settings row and keeps them in step by NOTIFY, with a TTL as the last net. */
export async function openSettings(
  db: Reader,
  listener: Listener,
  log: Logger,
  ttlSeconds: number,
): Promise<SettingsStore> {
  let rows = await readRows(db)
  let readAt = performance.now()
  const handlers: (() => void)[] = []
  const reload = inRounds<never, void>(async () => {
    readAt = performance.now()
    rows = await readRows(db)
    for (const handler of handlers) handler()
  })
  const reloadSoon = () => {
    reload().catch((error: unknown) => log.error({ err: error }, 'the settings could not be reloaded'))
  }
  listener.on('svc_settings', reloadSoon)
  listener.onReconnect(reloadSoon)
  const fresh = () => {
    if (performance.now() - readAt > ttlSeconds * 1000) {
      // Once, however many ask before the answer is there.
      readAt = performance.now()
      reloadSoon()
    }
    return rows
  }
  return {
    current: (tenantId) => merged(fresh(), tenantId),
    all: () => rows,
    onChange: (handler) => handlers.push(handler),
    own: (tenantId) => fresh().find((row) => row.tenant_Id === tenantId),
    byAppUrl: (appUrl) => ownerOf(fresh(), appUrl),
    reload,
  }
}

async function readRows(db: Reader): Promise<readonly SettingsRow[]> {
  const found = await db.any<{ settings: SettingsRow }>(
    sql.unsafe`select to_jsonb(s) as settings from "svc_Settings" s order by s.id`,
  )
  return found.map(({ settings }) => settings)
}

/** The installation's row, read now; undefined before the setup. */
export async function installationSettings(db: Reader): Promise<SettingsRow | undefined> {
  return (await readRows(db)).find((row) => row.tenant_Id === null)
}

/** The rows of tenants that have SMTP of their own switched on, by the names of the tenants; read now. */
export async function tenantsWithSmtp(
  db: Reader,
): Promise<readonly { readonly tenant: string; readonly settings: SettingsRow }[]> {
  return db.any(sql.unsafe`
    select t.name as tenant, to_jsonb(s) as settings from "svc_Settings" s join "svc_Tenant" t on t.id = s."tenant_Id"
    where s.smtp_enabled order by t.name, s.id`)
}

function ownerOf(rows: readonly SettingsRow[], appUrl: string): SettingsRow | undefined {
  const isGlobal = rows.some((row) => row.tenant_Id === null && row.app_url === appUrl)
  if (isGlobal) return merged(rows, undefined)
  const wanted = appUrl.toLowerCase()
  const own = rows.find((row) => row.tenant_Id !== null && String(row.app_url ?? '').toLowerCase() === wanted)
  return own === undefined ? undefined : merged(rows, own.tenant_Id ?? undefined)
}

function merged(rows: readonly SettingsRow[], tenantId: string | undefined): SettingsRow {
  const global = rows.find((row) => row.tenant_Id === null)
  if (global === undefined) throw new Error('the global settings are missing: run the setup')
  const own = tenantId === undefined ? undefined : rows.find((row) => row.tenant_Id === tenantId)
  return own === undefined ? global : overriddenBy(global)(own)
}

const overriddenBy = oncePer((global: SettingsRow) =>
  oncePer((own: SettingsRow) => {
    const set = Object.entries(own).filter(([, value]) => value !== null)
    return { ...global, ...Object.fromEntries(set) } as SettingsRow
  }),
)
