import type { Config } from '../../../config/config.ts'
import { AppError } from '../../../errors.ts'
import { oncePer } from '../../../language/once.ts'
import { type Transform, transformOf } from '../images/images.ts'

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
