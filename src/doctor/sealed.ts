import { type SealedFor, unseal } from '../adapters/sealing.ts'
import type { Config } from '../config/config.ts'
import { type Reader, rawQuery } from '../db/sql.ts'
import { sealedForWebhook } from '../features/messaging/webhooks/webhooks.ts'
import { sealedForSettings } from '../features/settings/settings.ts'
import { isStandIn } from './configuration.ts'
import { type Finding, ok, oneLine, problem, warning } from './finding.ts'

const check = 'sealed values'

type Kind = 'webhook' | 'former secret of webhook' | 'workflow secret' | 'SMTP password'

/** A value that only SECRET_KEY opens. */
type SealedValue = {
  readonly kind: Kind
  readonly name: string
  readonly sealedFor: SealedFor
  readonly sealed: string
}

/** Which of the two keys opens a value. */
type OpenedBy = 'SECRET_KEY' | 'SECRET_KEY_PREVIOUS' | 'neither'

type JudgedValue = Pick<SealedValue, 'kind' | 'name'> & { readonly by: OpenedBy }

/**
 * Whether the keys open what is sealed and stays so until somebody writes it anew. A lost webhook or workflow secret shows
 * otherwise only when it is used. Second factors are written anew as their users sign in, and there may be very many.
 */
export async function checkSealed(db: Reader, config: Config): Promise<Finding[]> {
  if (config.auth.secretKey === '' || isStandIn(config)) return []
  const values = [...(await webhookSecrets(db)), ...(await workflowSecrets(db)), ...(await smtpPasswords(db))]
  return judgeSealed(values.map((value) => ({ ...value, by: openedBy(config, value) })))
}

/** One finding for each kind that is lost, one for all that would be without SECRET_KEY_PREVIOUS. */
export function judgeSealed(values: readonly JudgedValue[]): Finding[] {
  const lost = values.filter(({ by }) => by === 'neither')
  const outdated = values.filter(({ by }) => by === 'SECRET_KEY_PREVIOUS')
  const found = [...Map.groupBy(lost, ({ kind }) => kind)].flatMap(([kind, all]) => {
    const remedy = remedies[kind]
    return remedy === undefined ? [] : [problem(check, `no key opens ${listed(kind, all)}`, remedy)]
  })
  if (outdated.length > 0) {
    const kinds = [...Map.groupBy(outdated, ({ kind }) => kind)].map(([kind, all]) => listed(kind, all))
    found.push(warning(check, `only SECRET_KEY_PREVIOUS opens ${kinds.join('; ')}`, remedyForOutdated))
  }
  if (found.length > 0) return found
  const opened = 'SECRET_KEY opens the secrets of webhooks and workflows'
  return [ok(check, lost.length > 0 ? opened : `${opened} and the SMTP passwords`)]
}

const formerKey = 'name the former key in SECRET_KEY_PREVIOUS'
/** The checks of mail try SMTP passwords, and say so themselves; of a webhook's secrets the present one is enough. */
const remedies: Partial<Record<Kind, string>> = {
  webhook: `${formerKey}, or rotate the secrets of these webhooks; then resume them`,
  'workflow secret': `${formerKey}, or set these secrets again`,
}
const remedyForOutdated =
  'keep SECRET_KEY_PREVIOUS until these webhooks have had another secret for a day and the others are set again'

const shownAtMost = 5

function listed(kind: Kind, values: readonly JudgedValue[]): string {
  const names = values.slice(0, shownAtMost).map(({ name }) => oneLine(name))
  const rest = values.length - names.length
  return `${kind} ${names.join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`
}

function openedBy(config: Config, { sealedFor, sealed }: SealedValue): OpenedBy {
  const unsealed = unseal(config, sealedFor, sealed)
  if (unsealed === undefined) return 'neither'
  return unsealed.outdated ? 'SECRET_KEY_PREVIOUS' : 'SECRET_KEY'
}

async function webhookSecrets(db: Reader): Promise<readonly SealedValue[]> {
  const rows = await db.any<{ id: string; name: string; secret: string; former: string | null }>(
    rawQuery(
      `select id, name, secret, case when "formerUntil" > now() then "formerSecret" end as former
       from "svc_Webhook" order by name, id`,
    ),
  )
  return rows.flatMap(({ id, name, secret, former }) => {
    const value = { name: `${name} (${id})`, sealedFor: sealedForWebhook(id) }
    const ofBefore = { ...value, kind: 'former secret of webhook' } as const
    return [
      { ...value, kind: 'webhook' as const, sealed: secret },
      ...(former === null ? [] : [{ ...ofBefore, sealed: former }]),
    ]
  })
}

/** Workflows are loaded where they are used, and so here too. */
async function workflowSecrets(db: Reader): Promise<readonly SealedValue[]> {
  const rows = await db.any<{ name: string; sealed: string }>(
    rawQuery(
      `select s.name || coalesce(' of tenant ' || t.name, '') as name, s.value as sealed
       from "svc_Secret" s left join "svc_Tenant" t on t.id = s."tenant_Id" order by 1`,
    ),
  )
  const { sealedForWorkflows } = await import('../features/work/workflows/workflows.ts')
  return rows.map((row) => ({ kind: 'workflow secret', sealedFor: sealedForWorkflows, ...row }))
}

async function smtpPasswords(db: Reader): Promise<readonly SealedValue[]> {
  const rows = await db.any<{ name: string; sealed: string }>(
    rawQuery(
      `select coalesce('of tenant ' || t.name, 'of the installation') as name, s.smtp_pass as sealed
       from "svc_Settings" s left join "svc_Tenant" t on t.id = s."tenant_Id" where s.smtp_pass is not null order by 1`,
    ),
  )
  return rows.map((row) => ({ kind: 'SMTP password', sealedFor: sealedForSettings, ...row }))
}
