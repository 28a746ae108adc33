import type { Caller } from '../../../access/principal.ts'
import { AppError } from '../../../errors.ts'
import { canonical } from '../images/images.ts'
import { type Asset, readableAsset } from './asset.ts'
import type { AssetReads } from './capabilities.ts'
import { membershipId } from './queries.ts'
import { checkTransform, wantedOf } from './request.ts'
import { signatureOf } from './signing.ts'

type ToSign = {
  readonly id: string
  readonly expiresIn: number
  readonly transform?: Readonly<Record<string, unknown>>
  readonly download?: boolean
}

type SignedUrl = { readonly id: string; readonly url: string; readonly expiresAt: string }

/** The signature's name for the content of a file: it changes with the content. */
export const contentOf = ({ hash, filename }: Asset): string => hash ?? filename

/** Addresses of files that the caller may read; all or none. Read only, so as many as wanted are under way at once. */
export async function signAssets(
  deps: AssetReads,
  caller: Caller,
  files: readonly ToSign[],
): Promise<readonly SignedUrl[]> {
  const signer = await membershipId(deps, caller)
  if (signer === undefined) throw new AppError(403, 'Only a user with a role can sign addresses')
  const signed: SignedUrl[] = []
  for (const file of files) signed.push(await sign(deps, caller, signer, file))
  return signed
}

async function sign(deps: AssetReads, caller: Caller, signer: string, file: ToSign): Promise<SignedUrl> {
  const { id, expiresIn, transform: asked = {}, download = false } = file
  const query = Object.fromEntries(Object.entries(asked).map(([name, value]) => [name, String(value)]))
  const wanted = wantedOf(query, deps.config)
  checkTransform({ ...wanted, signature: { signer, expires: 0, text: '' } }, deps.config)
  const asset = await readableAsset(deps, caller, id)
  const expires = Math.floor(deps.clock().getTime() / 1000) + expiresIn
  const transform = wanted.transform === undefined ? '' : canonical(wanted.transform)
  const signature = signatureOf(deps.config, {
    fileId: asset.id,
    content: contentOf(asset),
    transform,
    download,
    signer,
    expires,
  })
  const shown = wanted.isPreset ? `preset=${encodeURIComponent(String(query.preset))}` : transform
  const parts = [
    shown,
    download ? 'download=true' : '',
    `expires=${expires}`,
    `signer=${signer}`,
    `signature=${signature}`,
  ]
  const path = `/assets/${asset.id}?${parts.filter((part) => part !== '').join('&')}`
  return {
    id: asset.id,
    url: `${deps.config.server.baseUrl?.replace(/\/$/, '') ?? ''}${path}`,
    expiresAt: new Date(expires * 1000).toISOString(),
  }
}
