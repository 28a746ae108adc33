/**
 * The form of a backup: one stream, written and read from its beginning to its end.
 *
 *     magic line · records · trailer
 *
 * A record is a letter, a length (32 bits) and so many bytes: `H` the header, `P` a part begins, `D` a piece of it, `E` it
 * ends, `M` the manifest, `Z` the trailer. The manifest names every part with its SHA-256, the trailer has the SHA-256 of the
 * manifest. So a file without its trailer, or with anything else in it than was written, is taken for none.
 */
import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes, scrypt } from 'node:crypto'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import { constants, createZstdCompress, createZstdDecompress } from 'node:zlib'
import packageJson from '../../../../package.json' with { type: 'json' }
import type { Config } from '../../../config/config.ts'
import { type Reader, rawQuery } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import type { Objects } from './objects.ts'
import { type SealedValues, sealedValues } from './sealed.ts'

const formatVersion = 1

const magic = Buffer.from('DAYBOOK BACKUP\n')
const recordHead = 5
/** No writer makes longer records; a reader keeps one in memory. */
const longestRecord = 64 * 1024 * 1024

/** The identity of a part: `name` distinguishes it from others of its kind. */
type PartAbout = {
  readonly kind: 'schema' | 'table' | 'sequences' | 'file' | 'keys'
  readonly name: string
  readonly [more: string]: unknown
}

type PartRecord = PartAbout & {
  readonly encoding: Encoding
  /** Of what is stored, compressed where it is. */
  readonly sha256: string
  readonly bytes: number
}

type Encoding = 'zstd' | 'none'

type Manifest = { readonly format: number; readonly header: string; readonly parts: readonly PartRecord[] }

export type Pieces = AsyncIterable<Uint8Array>
type PartContent = Pieces | Iterable<Uint8Array>

/** Writes a backup piece by piece; `write` takes the next bytes of it. */
export function openWriter(write: (piece: Uint8Array) => Promise<void>) {
  const parts: PartRecord[] = []
  let headerHash = ''
  const record = async (letter: string, payload: Uint8Array) => {
    const head = Buffer.allocUnsafe(recordHead)
    head.write(letter, 0, 'latin1')
    head.writeUInt32BE(payload.length, 1)
    await write(head)
    if (payload.length > 0) await write(payload)
  }
  const json = (value: unknown) => Buffer.from(JSON.stringify(value))
  return {
    parts: (): readonly PartRecord[] => parts,
    async begin(header: object): Promise<void> {
      await write(magic)
      const bytes = json({ format: formatVersion, ...header })
      headerHash = hashOf(bytes)
      await record('H', bytes)
    },
    /** `onBytes` hears how much of the content has been read. */
    async part(
      about: PartAbout,
      encoding: Encoding,
      content: PartContent,
      onBytes?: (bytes: number) => void,
    ): Promise<void> {
      await record('P', json({ ...about, encoding }))
      const hash = createHash('sha256')
      let bytes = 0
      await encoded(counted(content, onBytes), encoding, async (piece) => {
        hash.update(piece)
        bytes += piece.length
        await record('D', piece)
      })
      const sha256 = hash.digest('hex')
      await record('E', json({ sha256, bytes }))
      parts.push({ ...about, encoding, sha256, bytes })
    },
    async end(): Promise<void> {
      const manifest = json({ format: formatVersion, header: headerHash, parts } satisfies Manifest)
      await record('M', manifest)
      await record('Z', Buffer.from(hashOf(manifest), 'hex'))
    },
  }
}

const hashOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

async function* counted(
  content: PartContent,
  onBytes: ((bytes: number) => void) | undefined,
): AsyncGenerator<Uint8Array> {
  for await (const piece of content) {
    onBytes?.(piece.length)
    yield piece
  }
}

/** Small windows: of many parts at a time one is open, and who restores has the memory of that window too. */
const compression = { params: { [constants.ZSTD_c_compressionLevel]: 2 }, chunkSize: 64 * 1024 }

async function encoded(content: Pieces, encoding: Encoding, take: (piece: Uint8Array) => Promise<void>): Promise<void> {
  if (encoding === 'none') {
    for await (const piece of content) await take(piece)
    return
  }
  await pipeline(Readable.from(content), createZstdCompress(compression), async (pieces: Pieces) => {
    for await (const piece of pieces) await take(piece)
  })
}

/** A part as it is read: its content must be read, or is passed over when the next part is asked for. */
export type ReadPart = { readonly about: PartAbout; readonly content: Pieces }

/**
 * Reads a backup from its beginning: `header` first, then `parts`, one after the other. The end of `parts` says that the whole
 * backup was read and is what was written; everything before may turn out to be of a broken one.
 *
 * @throws {AppError} 422 for what is no backup, a later format, and a backup that is cut off or was changed
 */
export async function openReader(source: Pieces) {
  const bytes = openBytes(source)
  const first = await bytes.read(magic.length)
  if (first === undefined || !first.equals(magic)) throw broken('this is no backup of Daybook')
  const begin = await nextRecord(bytes)
  if (begin.letter !== 'H') throw broken('its header is missing')
  const header = jsonIn(begin.payload) as { readonly format: number; readonly [member: string]: unknown }
  if (header.format !== formatVersion)
    throw broken(
      `its format is ${String(header.format)}, and this program reads ${formatVersion}: use the program that made it`,
    )
  return { header, parts: () => partsOf(bytes, hashOf(begin.payload)) }
}

type Bytes = ReturnType<typeof openBytes>

async function* partsOf(bytes: Bytes, headerHash: string): AsyncGenerator<ReadPart> {
  const seen: PartRecord[] = []
  for (;;) {
    const { letter, payload } = await nextRecord(bytes)
    if (letter === 'M') return await judgeEnd(bytes, payload, headerHash, seen)
    if (letter !== 'P') throw broken(`a record ${JSON.stringify(letter)} stands where a part should begin`)
    const about = jsonIn(payload) as PartAbout & { readonly encoding: Encoding }
    const stored = storedPieces(bytes, about, seen)
    const { encoding, ...others } = about
    yield { about: others as PartAbout, content: decoded(stored, encoding) }
    // An unwanted part is read all the same, and checked.
    for await (const _piece of stored);
  }
}

async function judgeEnd(
  bytes: Bytes,
  manifest: Buffer,
  headerHash: string,
  seen: readonly PartRecord[],
): Promise<void> {
  const { header, parts } = jsonIn(manifest) as Manifest
  if (header !== headerHash) throw broken('its header was changed')
  if (JSON.stringify(parts) !== JSON.stringify(seen)) throw broken('its parts are not those of its manifest')
  const { letter, payload } = await nextRecord(bytes)
  if (letter !== 'Z' || payload.toString('hex') !== hashOf(manifest)) throw broken('its trailer does not fit')
  if ((await bytes.read(1)) !== undefined) throw broken('something follows its end')
}

/** The bytes of a part as they are stored; at its end they are compared with what the part says of itself. */
async function* storedPieces(bytes: Bytes, about: PartAbout & { encoding: Encoding }, seen: PartRecord[]) {
  const hash = createHash('sha256')
  let length = 0
  for (;;) {
    const { letter, payload } = await nextRecord(bytes)
    if (letter === 'D') {
      hash.update(payload)
      length += payload.length
      yield payload
      continue
    }
    const end = letter === 'E' ? (jsonIn(payload) as { sha256: string; bytes: number }) : undefined
    const sha256 = hash.digest('hex')
    if (end === undefined || end.sha256 !== sha256 || end.bytes !== length)
      throw broken(`the part ${about.kind} ${about.name} is not what was written`)
    seen.push({ ...about, sha256, bytes: length })
    return
  }
}

async function* decoded(stored: AsyncGenerator<Buffer>, encoding: Encoding): AsyncGenerator<Uint8Array> {
  if (encoding === 'none') return yield* stored
  const unpacked = createZstdDecompress({ chunkSize: 64 * 1024 })
  const fed = pipeline(Readable.from(stored), unpacked)
  // Told by the pieces as well.
  fed.catch(() => undefined)
  for await (const piece of unpacked) yield piece
  await fed
}

async function nextRecord(bytes: Bytes): Promise<{ letter: string; payload: Buffer }> {
  const head = await bytes.read(recordHead)
  if (head === undefined) throw broken('it is cut off')
  const length = head.readUInt32BE(1)
  if (length > longestRecord) throw broken('a record of it is longer than any that is written')
  const payload = length === 0 ? Buffer.alloc(0) : await bytes.read(length)
  if (payload === undefined) throw broken('it is cut off')
  return { letter: head.toString('latin1', 0, 1), payload }
}

function jsonIn(payload: Buffer): unknown {
  try {
    return JSON.parse(payload.toString('utf8'))
  } catch (cause) {
    throw broken('a record of it cannot be read', cause)
  }
}

const broken = (says: string, cause?: unknown): AppError =>
  new AppError(422, `The backup cannot be used: ${says}`, { code: 'BACKUP_BROKEN', cause })

/** Reads exact numbers of bytes from pieces of any size; undefined where there are not so many any more. */
function openBytes(source: Pieces) {
  const pieces = source[Symbol.asyncIterator]()
  let held: Buffer[] = []
  let length = 0
  return {
    async read(wanted: number): Promise<Buffer | undefined> {
      while (length < wanted) {
        const { done, value } = await pieces.next()
        if (done) return undefined
        held.push(Buffer.from(value.buffer, value.byteOffset, value.length))
        length += value.length
      }
      const all = held.length === 1 ? held[0]! : Buffer.concat(held)
      const rest = all.subarray(wanted)
      held = rest.length > 0 ? [rest] : []
      length = rest.length
      return all.subarray(0, wanted)
    },
  }
}

/** The description of a backup before its first part. */
export type BackupHeader = {
  readonly id: string
  /** When its moment was, ISO 8601 in UTC. */
  readonly createdAt: string
  /** The version of the program that made it, the newest migration of the platform in it, and the server's version. */
  readonly program: string
  readonly migration: string | undefined
  readonly server: string
  readonly database: string
  /** {@link fingerprintOf} the key that sealed what is sealed in it; null where its writer did not have the key. */
  readonly key: string | null
  /** The same of the key before it, where some of that opens with it alone. */
  readonly formerKey?: string
  readonly sealed: readonly SealedValues[]
  /** Whether the keys are in it, under a passphrase. */
  readonly hasKeys: boolean
  readonly storages: readonly { readonly name: string; readonly files: number; readonly bytes: number }[]
}

/** Tells keys apart, and says nothing else of them. */
export function fingerprintOf(secret: string): string {
  return Buffer.from(hkdfSync('sha256', secret, 'daybook', 'fingerprint of backups', 8)).toString('hex')
}

const factsSql = `select to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
    current_setting('server_version') as server, current_database() as database`

export async function headerOf(
  { config }: { readonly config: Config },
  db: Reader,
  { relations, columns }: Objects,
  { id, hasKeys }: Pick<BackupHeader, 'id' | 'hasKeys'>,
): Promise<BackupHeader> {
  const facts = await db.one<{ createdAt: string; server: string; database: string }>(rawQuery(factsSql))
  const { secretKey, secretKeyPrevious } = config.auth
  const tables = new Map(relations.flatMap(({ schema, name, oid }) => (schema === 'public' ? [[name, oid]] : [])))
  const has = (table: string, column: string) =>
    columns.some(({ relation, plainName }) => relation === tables.get(table) && plainName === column)
  const sealed = await sealedValues({ config }, db, has)
  const storages = has('svc_File', 'size') ? await db.any<BackupHeader['storages'][number]>(rawQuery(storagesSql)) : []
  return {
    id,
    ...facts,
    program: packageJson.version,
    migration: tables.has('svc_Migration') ? await newestMigration(db) : undefined,
    key: secretKey === '' ? null : fingerprintOf(secretKey),
    ...(sealed.some(({ former }) => former) && { formerKey: fingerprintOf(secretKeyPrevious!) }),
    hasKeys,
    sealed,
    storages,
  }
}

const storagesSql = `select storage as name, count(*)::float8 as files, coalesce(sum(size), 0)::float8 as bytes
  from public."svc_File" group by storage order by storage`

/** The newest migration of the platform that a database has. */
async function newestMigration(db: Reader): Promise<string | undefined> {
  const row = await db.maybeOne<{ version: string }>(
    rawQuery(`select version from public."svc_Migration" where version ~ '^0\\.\\d+\\.\\d+$' and status = 'completed'
      order by string_to_array(version, '.')::int[] desc limit 1`),
  )
  return row?.version
}

// The keys of an installation in a backup: only under a passphrase, by scrypt and AES-256-GCM.

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
