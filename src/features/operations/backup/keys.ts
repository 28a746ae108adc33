/** The keys of an installation in a backup: only under a passphrase, by scrypt and AES-256-GCM. */
import { createCipheriv, createDecipheriv, randomBytes, scrypt } from 'node:crypto'
import { promisify } from 'node:util'
import type { Config } from '../../../config/config.ts'
import { AppError } from '../../../errors.ts'

/** By the names of their variables. */
export type Keys = Readonly<Record<string, string>>

export function keysOf({ auth, log }: Config): Keys {
  const all = { SECRET_KEY: auth.secretKey, SECRET_KEY_PREVIOUS: auth.secretKeyPrevious, LOG_SEAL_KEY: log.sealKey }
  return Object.fromEntries(Object.entries(all).filter((entry): entry is [string, string] => (entry[1] ?? '') !== ''))
}

type SealedKeys = {
  readonly N: number
  readonly r: number
  readonly p: number
  readonly salt: string
  readonly nonce: string
  readonly tag: string
  readonly text: string
}

/** Takes 32 MiB and about a third of a second. */
const cost = { N: 2 ** 15, r: 8, p: 3 }
/** The maker of a backup must not choose how much memory reading it takes. */
const mostMemory = 256 * 1024 * 1024
const derive = promisify<string, Buffer, number, { N: number; r: number; p: number; maxmem: number }, Buffer>(scrypt)

export async function sealKeys(keys: Keys, passphrase: string): Promise<string> {
  const [salt, nonce] = [randomBytes(16), randomBytes(12)]
  const cipher = createCipheriv(
    'aes-256-gcm',
    await derive(passphrase, salt, 32, { ...cost, maxmem: mostMemory }),
    nonce,
  )
  const text = Buffer.concat([cipher.update(JSON.stringify(keys), 'utf8'), cipher.final()])
  const bytes = { salt, nonce, tag: cipher.getAuthTag(), text }
  const encoded = Object.fromEntries(Object.entries(bytes).map(([name, value]) => [name, value.toString('base64')]))
  return JSON.stringify({ ...cost, ...encoded })
}

/** 409 for another passphrase. */
export async function openKeys(sealed: string, passphrase: string): Promise<Keys> {
  const { N, r, p, ...encoded } = JSON.parse(sealed) as SealedKeys
  const bytes = (name: keyof typeof encoded) => Buffer.from(encoded[name], 'base64')
  const key = await derive(passphrase, bytes('salt'), 32, { N, r, p, maxmem: mostMemory })
  const decipher = createDecipheriv('aes-256-gcm', key, bytes('nonce'), { authTagLength: 16 })
  decipher.setAuthTag(bytes('tag'))
  const text = decipher.update(bytes('text'))
  try {
    return JSON.parse(Buffer.concat([text, decipher.final()]).toString('utf8')) as Keys
  } catch (cause) {
    throw new AppError(409, 'The passphrase does not open the keys of the backup', { code: 'WRONG_PASSPHRASE', cause })
  }
}
