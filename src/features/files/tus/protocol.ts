import { AppError, errors } from '../../../errors.ts'
import { decodeText } from '../../../http/json-values.ts'

/* The headers of tus 1.0, read and written. */

/** The client's description of a file, by name. */
export type Metadata = Readonly<Record<string, string>>

export type Checksum = { readonly algorithm: 'sha1' | 'sha256'; readonly value: string }

export const tusVersion = '1.0.0'
const checksumAlgorithms = 'sha1,sha256'

/** The headers that describe the protocol before a client begins. */
export const offered = {
  'tus-resumable': tusVersion,
  'tus-version': tusVersion,
  'tus-extension': 'creation,termination,expiration,checksum',
  'tus-checksum-algorithm': checksumAlgorithms,
}

/** A whole number of bytes. 400 for others. */
export function readBytes(name: string, value: unknown): number {
  const size = typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN
  if (Number.isNaN(size)) throw errors.badBody(`${name} must be a number of bytes`)
  return size
}

/** `filename d29ybGQ=,isPublic` */
export function readMetadata(value: unknown): Metadata {
  const metadata: Record<string, string> = Object.create(null)
  if (value === undefined || value === '') return metadata
  const pairs = String(value).split(',')
  if (pairs.length > 25) throw errors.badBody('Upload-Metadata has too many members')
  for (const pair of pairs) {
    const [, name, encoded = ''] = /^\s*([\x21-\x2b\x2d-\x7e]+)(?: ([A-Za-z0-9+/]*={0,2}))?\s*$/.exec(pair) ?? []
    if (name === undefined) throw errors.badBody('Upload-Metadata must be names and base64 values, by commas')
    metadata[name] = decodeText(Buffer.from(encoded, 'base64'), `${name} in Upload-Metadata`)
  }
  return { ...metadata }
}

/** The same as a header. */
export const writtenMetadata = (metadata: Metadata): string =>
  Object.entries(metadata)
    .map(([name, value]) => `${name} ${Buffer.from(value).toString('base64')}`)
    .join(',')

/** 400 for an algorithm that is not offered. */
export function readChecksum(value: unknown): Checksum | undefined {
  if (value === undefined) return undefined
  const [, algorithm, digest] = /^(sha1|sha256) ([A-Za-z0-9+/]+={0,2})$/.exec(String(value)) ?? []
  if (digest === undefined)
    throw errors.badBody(`Upload-Checksum must be one of ${checksumAlgorithms} and a base64 value`)
  return { algorithm: algorithm as Checksum['algorithm'], value: digest }
}

/** The method that a POST stands for. 400 for others: HEAD reads by its own name. */
export function meantMethod(value: unknown): 'PATCH' | 'DELETE' {
  const method = typeof value === 'string' ? value.toUpperCase() : undefined
  if (method !== 'PATCH' && method !== 'DELETE')
    throw errors.badBody('X-HTTP-Method-Override must be PATCH or DELETE at the address of an upload')
  return method
}

/** 412 where the client speaks another version. */
export function requireVersion(value: unknown): void {
  if (value !== tusVersion)
    throw new AppError(412, `Tus-Resumable must be ${tusVersion}`, { headers: { 'tus-version': tusVersion } })
}
