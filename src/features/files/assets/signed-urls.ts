import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto'
import type { Caller } from '../../../access/principal.ts'
import { deriveKeys } from '../../../adapters/tokens.ts'
import type { Config } from '../../../config/config.ts'
import { AppError } from '../../../errors.ts'
import { oncePer } from '../../../language/once.ts'
import { canonical, type Transform, transformOf } from '../images/images.ts'
import { type Asset, type AssetReads, membershipId, readableAsset } from './assets.ts'

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

/* Addresses that let every holder read one file, in one form, for a while, in the name of their signer. */

/** The signed members. `signer` is a row of svc_UserRole: a user in a role, at a tenant. */
type Signed = {
  readonly fileId: string
  /** The content; another one under the same id was not signed. */
  readonly content: string
  /** The transform as one text, empty for the original. */
  readonly transform: string
  readonly download: boolean
  readonly signer: string
  /** Seconds since 1970. */
  readonly expires: number
}

function signatureOf(config: Config, signed: Signed): string {
  return hmac(keysOf(config)[0]!, signed).toString('base64url')
}

/** Also by the key before a rotation. */
export function isSigned(config: Config, signed: Signed, signature: string): boolean {
  const given = Buffer.from(signature, 'base64url')
  return keysOf(config).some((key) => {
    const right = hmac(key, signed)
    return given.length === right.length && timingSafeEqual(given, right)
  })
}

const keysOf = oncePer((config: Config): readonly KeyObject[] => deriveKeys(config, 'signed assets'))

function hmac(key: KeyObject, { fileId, content, transform, download, signer, expires }: Signed): Buffer {
  const text = JSON.stringify([fileId, content, transform, download, signer, expires])
  return createHmac('sha256', key).update(text).digest()
}

/* A request for an asset, read from its query. */

export type AssetQuery = Readonly<Record<string, unknown>>

export type Wanted = {
  /** Undefined for the original. */
  readonly transform: Transform | undefined
  readonly isPreset: boolean
  readonly download: boolean
  readonly signature: { readonly signer: string; readonly expires: number; readonly text: string } | undefined
}

export function wantedOf(query: AssetQuery, config: Config): Wanted {
  const isPreset = query.preset !== undefined && query.preset !== ''
  return {
    transform: isPreset ? presetOf(query.preset, config) : transformOf(query, config.assets.maxDimension),
    isPreset,
    download: query.download === 'true',
    signature: query.signature === undefined ? undefined : signatureIn(query),
  }
}

/** 403 where ASSET_TRANSFORMS does not let the transform be made. */
export function checkTransform({ transform, isPreset, signature }: Wanted, { assets }: Config): void {
  if (transform === undefined) return
  const mode = assets.transforms
  const isSigned = signature !== undefined && mode === 'signed'
  if (mode === 'all' || (mode !== 'off' && (isPreset || isSigned))) return
  throw new AppError(403, transformRefusals[mode], { code: 'TRANSFORM_NOT_ALLOWED' })
}

const transformRefusals = {
  signed: 'Transforms need a signed address or a preset',
  presets: 'Transforms need a preset',
  off: 'Images are not transformed here',
}

function presetOf(name: unknown, config: Config): Transform {
  const preset = typeof name === 'string' ? presetsOf(config).get(name) : undefined
  if (preset === undefined) throw new AppError(400, 'Unknown preset', { code: 'UNKNOWN_PRESET' })
  return preset
}

/** Of `thumb=width:200;format:webp`. */
const presetsOf = oncePer(({ assets }: Config): ReadonlyMap<string, Transform> => {
  const presets = assets.presets.map((text) => {
    const [name = '', parameters = ''] = text.split('=', 2)
    const query = Object.fromEntries(parameters.split(';').map((parameter) => parameter.split(':', 2)))
    return [name, transformOf(query, assets.maxDimension) ?? ({ format: 'jpeg', quality: 80 } as const)] as const
  })
  return new Map(presets)
})

function signatureIn({ signer, expires, signature }: AssetQuery): Wanted['signature'] {
  return { signer: String(signer), expires: Number(expires), text: String(signature) }
}
