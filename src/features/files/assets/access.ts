import type { Caller } from '../../../access/principal.ts'
import type { Config } from '../../../config/config.ts'
import { essenceOf } from './delivery.ts'

/* Decides who may read the content of a file, as far as that needs no database. */

type AssetOwner = { readonly isPublic: boolean; readonly tenantId: string | null }

/** `anyone`: whoever asks gets the same; `caller`: this one does; `permission`: the caller's grants decide. */
type AssetAccess = 'anyone' | 'caller' | 'permission'

export function assetAccess(
  { isPublic, tenantId }: AssetOwner,
  { userId }: Pick<Caller, 'userId'>,
  { assets }: Config,
): AssetAccess {
  if (isPublic) return 'anyone'
  const isShared = tenantId !== null && assets.sharedTenantIds.some((id) => id.toLowerCase() === tenantId)
  if (isShared && assets.sharedAccessMode === 'public') return 'anyone'
  if (isShared && assets.sharedAccessMode === 'authenticated' && userId !== undefined) return 'caller'
  return 'permission'
}

/** Refusals of types that ASSET_SECURE_PROXY_URLS names, in the words that their clients know. */
type ProxyRefusal = { readonly status: 401 | 403; readonly message: string }

/**
 * The extra demand of types in ASSET_SECURE_PROXY_URLS: a signed-in caller that names itself in `x-svc-user-auth`,
 * which a page of another site cannot send. The header proves nothing by itself.
 */
export function secureProxyRefusal(
  type: string,
  { userId }: Pick<Caller, 'userId'>,
  header: string | string[] | undefined,
  { assets }: Config,
): ProxyRefusal | undefined {
  if (!assets.proxyEnabled || !isListed(type, assets.secureProxyTypes)) return undefined
  if (userId === undefined) return { status: 401, message: 'Authentication required' }
  if (header !== userId) return { status: 403, message: 'Invalid or missing authentication header' }
  return undefined
}

function isListed(type: string, types: readonly string[]): boolean {
  const essence = essenceOf(type)
  return types.some((one) => {
    const listed = one.toLowerCase()
    return listed.includes('/') ? essence === listed : essence.startsWith(`${listed}/`)
  })
}
