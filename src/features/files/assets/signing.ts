import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto'
import { deriveKeys } from '../../../adapters/tokens.ts'
import type { Config } from '../../../config/config.ts'
import { oncePer } from '../../../language/once.ts'

/* Addresses that let whoever has them read one file, in one form, for a while, in the name of who signed them. */

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

export function signatureOf(config: Config, signed: Signed): string {
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
