import { hashSecret, newSecret } from '../../adapters/tokens.ts'

/**
 * `dbk_`, 64 hex digits of chance, 8 of checksum: scanners for leaked secrets recognise it, one double click selects
 * it, and a typo is refused without a question to the database.
 */
export function newApiKey(): string {
  const body = prefix + newSecret()
  return body + checksumOf(body)
}

/** Whether a credential claims to be an API key; access tokens never do. */
export function readsLikeApiKey(text: string): boolean {
  return text.startsWith(prefix)
}

/** Whether it is one that this platform may have made. */
export function isApiKey(text: string): boolean {
  return shape.test(text) && text.endsWith(checksumOf(text.slice(0, -checksumLength)))
}

/** The beginning of a key, which tells its owner which one it is. */
export function hintOf(key: string): string {
  return key.slice(0, prefix.length + 6)
}

const prefix = 'dbk_'
const checksumLength = 8
const shape = /^dbk_[0-9a-f]{72}$/

function checksumOf(body: string): string {
  return hashSecret(body).slice(0, checksumLength)
}
