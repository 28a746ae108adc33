import { accessOfPrincipal, type Caller, principalOf } from '../../../access/principal.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Reads } from '../../../db/pools.ts'
import { AppError, errors } from '../../../errors.ts'
import { isUuid } from '../../../language/uuid.ts'
import { compileCondition } from '../../../query/compile.ts'
import { resolveEnv } from '../../../query/env.ts'
import { resolveCondition } from '../../../query/resolve.ts'
import { createParams, type Statement, statement } from '../../../query/sql.ts'
import { type CurrentSettings, imageNames } from '../../settings/settings.ts'
import { assetAccess } from './access.ts'
import type { AssetReads } from './capabilities.ts'
import { type AssetRow, assetRow, principalRow } from './queries.ts'

export type Asset = AssetRow & {
  /** Every caller gets the same answer. */
  readonly isForAll: boolean
}

/** The caller who reads a file. */
type Reader = Pick<Caller, 'userId' | 'access'>

export const fileNotFound = () => new AppError(404, 'File not found')

/** The file, where the reader may have its content. 404 where there is none, 403 where it is not the reader's to see. */
export async function readableAsset(deps: AssetReads, reader: Reader, id: string): Promise<Asset> {
  if (!isUuid(id)) throw fileNotFound()
  const { rule, refusal } = readRule(deps, reader, id)
  const row = await assetRow(deps, rule)
  if (row === undefined) throw fileNotFound()
  const access = assetAccess(row, reader, deps.config)
  if (access === 'permission' && !row.readable) throw refusal ?? errors.itemDenied('read')
  return { ...row, isForAll: access === 'anyone' }
}

/** For what the platform itself does: whoever's it is. Undefined where there is none. */
export const storedAsset = async (deps: Reads & CurrentCatalog, id: string): Promise<AssetRow | undefined> =>
  isUuid(id) ? assetRow(deps, statement('true', [id])) : undefined

/** Images that the settings name; everybody sees them. */
export const isSettingsImage = (name: string): boolean => imageNames.includes(name)

/** Undefined where the settings of the tenant, or of the installation, name none. */
export async function settingsAsset(
  deps: Reads & CurrentCatalog & CurrentSettings,
  name: string,
  tenantId: unknown,
): Promise<Asset | undefined> {
  const tenant = typeof tenantId === 'string' && isUuid(tenantId) ? tenantId.toLowerCase() : undefined
  const id = deps.settings.current(tenant)[`${name}_Id`]
  const row = typeof id === 'string' ? await storedAsset(deps, id) : undefined
  return row && { ...row, isForAll: true }
}

/** The signer as a reader. 403 if the signer has lost all rights. */
export async function signerOf(deps: AssetReads, membership: string): Promise<Reader> {
  const row = isUuid(membership) ? await principalRow(deps, membership) : undefined
  if (row === undefined) throw badSignature()
  const principal = await principalOf(deps.db, deps.access.current(), deps.config.tenancy.enabled, row, deps.log)
  return { userId: principal.userId, access: accessOfPrincipal(deps, principal) }
}

export const badSignature = () =>
  new AppError(403, 'The signature of this address is not valid', { code: 'INVALID_SIGNATURE' })

/** The condition of the reader's grant as SQL; false with its refusal where there is none, which public files need not. */
function readRule(deps: AssetReads, { access }: Reader, id: string): { rule: Statement; refusal?: AppError } {
  const params = createParams()
  params.bind(id, 'uuid')
  try {
    const rule = resolveCondition(deps.catalog.current(), access, 'svc_File', 'read', resolveEnv(deps))
    const text = rule === undefined ? 'true' : compileCondition(rule, 't', params)
    return { rule: statement(text, params.values) }
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    return { rule: statement('false', [id]), refusal: error }
  }
}
