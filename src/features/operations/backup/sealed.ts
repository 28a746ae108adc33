/** What SECRET_KEY encrypted in the tables of an installation, and which of it is left from the key before. */
import { type SealedFor, unseal } from '../../../adapters/sealing.ts'
import type { Configuration } from '../../../config/config.ts'
import { type Reader, rawQuery } from '../../../db/sql.ts'

/** In words, and their number; `former`: of these only SECRET_KEY_PREVIOUS opens so many. */
export type SealedValues = { readonly what: string; readonly count: number; readonly former?: number }

/** `owner`: of a value, as SQL. `purpose` says what it was sealed for; slices are loaded where a rotation is under way. */
type SealedColumn = {
  readonly table: string
  readonly column: string
  readonly what: string
  readonly owner: string
  purpose(): Promise<(owner: string) => SealedFor>
}

const ofAccounts = {
  table: 'svc_Account',
  what: 'tokens of sign-in providers',
  owner: `jsonb_build_array("providerId", "accountId")`,
  purpose: async () => {
    const { sealedForTokens } = await import('../../accounts/social/social.ts')
    // The spaces of PostgreSQL's JSON are not those of ours.
    return (owner: string) => sealedForTokens(JSON.stringify(JSON.parse(owner)))
  },
}

const sealedColumns: readonly SealedColumn[] = [
  {
    table: 'svc_Settings',
    column: 'smtp_pass',
    what: 'SMTP passwords',
    owner: `''`,
    purpose: async () => {
      const { sealedForSettings } = await import('../../settings/settings.ts')
      return () => sealedForSettings
    },
  },
  {
    table: 'svc_TwoFactor',
    column: 'secret',
    what: 'second factors',
    owner: `"user_Id"`,
    purpose: async () => (await import('../../accounts/proofs/proofs.ts')).secretOf,
  },
  {
    table: 'svc_Webhook',
    column: 'secret',
    what: 'secrets of webhooks',
    owner: 'id',
    purpose: async () => (await import('../../messaging/webhooks/webhooks.ts')).sealedForWebhook,
  },
  {
    table: 'svc_Secret',
    column: 'value',
    what: 'secrets of workflows',
    owner: `''`,
    purpose: async () => {
      const { sealedForWorkflows } = await import('../../work/workflows/workflows.ts')
      return () => sealedForWorkflows
    },
  },
  { ...ofAccounts, column: 'accessToken' },
  { ...ofAccounts, column: 'refreshToken' },
]

/**
 * In one transaction. Values are opened only where SECRET_KEY_PREVIOUS is set: without it none of them counts as its.
 * `has` tells the columns that are there, in the database of an earlier version too.
 */
export async function sealedValues(
  deps: Configuration,
  db: Reader,
  has: (table: string, column: string) => boolean,
): Promise<readonly SealedValues[]> {
  const { secretKey, secretKeyPrevious } = deps.config.auth
  const isRotating = secretKey !== '' && secretKeyPrevious !== undefined
  const found = new Map<string, { readonly count: number; readonly former: number }>()
  for (const sealed of sealedColumns) {
    const { table, column, what } = sealed
    if (!has(table, column)) continue
    const { count } = await db.one<{ count: number }>(
      rawQuery(`select count("${column}")::float8 as count from public."${table}"`),
    )
    if (count === 0) continue
    const former = isRotating ? await countFormer(deps, db, sealed) : 0
    const before = found.get(what) ?? { count: 0, former: 0 }
    found.set(what, { count: before.count + count, former: before.former + former })
  }
  return [...found].map(([what, { count, former }]) => ({ what, count, ...(former > 0 && { former }) }))
}

/** There may be very many second factors: a page of them at a time. */
const pageSize = 1000

async function countFormer({ config }: Configuration, db: Reader, sealed: SealedColumn): Promise<number> {
  const { table, column, owner, purpose } = sealed
  const sealedFor = await purpose()
  await db.any(
    rawQuery(
      `declare sealed_values no scroll cursor for
       select (${owner})::text as owner, "${column}" as sealed from public."${table}" where "${column}" is not null`,
    ),
  )
  let former = 0
  for (let read = pageSize; read === pageSize; ) {
    const rows = await db.any<{ owner: string; sealed: string }>(rawQuery(`fetch ${pageSize} from sealed_values`))
    for (const row of rows) if (unseal(config, sealedFor(row.owner), row.sealed)?.outdated) former += 1
    read = rows.length
  }
  await db.any(rawQuery('close sealed_values'))
  return former
}
