import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { extname } from 'node:path'
import type { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import {
  accessOfPrincipal,
  type Caller,
  type PrincipalRow,
  principalOf,
  principalSql,
} from '../../../access/principal.ts'
import type { CurrentAccess } from '../../../access/store.ts'
import { type BoundedMemory, openBoundedMemory } from '../../../adapters/bounded-memory.ts'
import { essenceOf } from '../../../adapters/file-type.ts'
import type { Logs } from '../../../adapters/logger.ts'
import { deriveKeys } from '../../../adapters/tokens.ts'
import { clientGone, workFor } from '../../../admission/asker.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import { type CurrentCatalog, withFreshPlan } from '../../../catalog/store.ts'
import type { ParamValue } from '../../../catalog/values.ts'
import type { Config, Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import type { UnloggedWrites } from '../../../db/sql.ts'
import {
  claimVariant,
  completeVariant,
  forgetVariant,
  surplusVariants,
  type VariantClaim,
} from '../../../db/unlogged/files.ts'
import { AppError, errors } from '../../../errors.ts'
import { oncePer } from '../../../language/once.ts'
import { isUuid } from '../../../language/text.ts'
import { compileCondition } from '../../../query/compile.ts'
import { resolveCondition, resolveEnv } from '../../../query/resolve.ts'
import { createParams, type Statement, statement } from '../../../query/sql.ts'
import { type CurrentSettings, imageNames } from '../../settings/settings.ts'
import {
  canonical,
  digestOf,
  extensionOf,
  type ImageProcessing,
  type Transform,
  transformOf,
} from '../images/images.ts'
import { type ByteRange, keyOf, type Storage, type StorageServices } from '../storage/storage.ts'

/* The public face of this folder. */

export { attachment } from './delivery.ts'

export type Asset = AssetRow & {
  /** Every caller gets the same answer. */
  readonly isForAll: boolean
}

/** The caller who reads a file. */
type AssetReader = Pick<Caller, 'userId' | 'access'>

export const fileNotFound = () => new AppError(404, 'File not found')

/** The file, where the reader may have its content. 404 where there is none, 403 where it is not the reader's to see. */
export async function readableAsset(deps: AssetReads, reader: AssetReader, id: string): Promise<Asset> {
  if (!isUuid(id)) throw fileNotFound()
  const { rule, refusal } = readRule(deps, reader, id)
  const row = await assetRow(deps, rule)
  if (row === undefined) throw fileNotFound()
  const access = assetAccess(row, reader, deps.config)
  if (access === 'permission' && !row.readable) throw refusal ?? errors.itemDenied('read')
  return { ...row, isForAll: access === 'anyone' }
}

/**
 * The same for a signature, which says nothing of files that the reader may not see: they are 404 as those that there are not, and
 * without any right to read files both are 403.
 */
async function signableAsset(deps: AssetReads, reader: AssetReader, id: string): Promise<Asset> {
  if (!isUuid(id)) throw fileNotFound()
  const { rule, refusal } = readRule(deps, reader, id)
  const row = await assetRow(deps, rule)
  const access = row && assetAccess(row, reader, deps.config)
  if (row === undefined || (access === 'permission' && !row.readable)) throw refusal ?? fileNotFound()
  return { ...row, isForAll: access === 'anyone' }
}

/** For the platform itself: a file of any owner. Undefined where there is none. */
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
export async function signerOf(deps: AssetReads, membership: string): Promise<AssetReader> {
  const row = isUuid(membership) ? await principalRow(deps, membership) : undefined
  if (row === undefined) throw badSignature()
  const principal = await principalOf(deps.db, deps.access.current(), deps.config.tenancy.enabled, row, deps.log)
  return { userId: principal.userId, access: accessOfPrincipal(deps, principal) }
}

export const badSignature = () =>
  new AppError(403, 'The signature of this address is not valid', { code: 'INVALID_SIGNATURE' })

/** The condition of the reader's grant as SQL; false with its refusal where there is none, which public files need not. */
function readRule(deps: AssetReads, { access }: AssetReader, id: string): { rule: Statement; refusal?: AppError } {
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

/* Decides who may read the content of a file, as far as that needs no database. */

type AssetOwner = { readonly isPublic: boolean; readonly tenantId: string | null }

/** `anyone`: every caller gets the same; `caller`: this one does; `permission`: the caller's grants decide. */
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

/** The columns of a row that describe its content. */
export type AssetRow = {
  readonly id: string
  readonly storage: string
  readonly folder: string | null
  readonly filename: string
  readonly type: string
  readonly typeProven: boolean
  readonly size: number
  readonly hash: string | null
  readonly width: number | null
  readonly height: number | null
  readonly name: string
  readonly isPublic: boolean
  readonly tenantId: string | null
  /** Milliseconds. */
  readonly modified: number
  /** Whether the rule that was asked for lets the caller read it. */
  readonly readable: boolean
}

/** The row of a file, regardless of rights, and whether a rule on `t` holds for it; the rule's values begin with the id. */
async function assetRow(deps: Reads & CurrentCatalog, rule: Statement): Promise<AssetRow | undefined> {
  const text = `select t.id, t.storage, t.storage_folder as folder, t.filename, t.type, t."typeProven" is true as "typeProven",
      t.size::float8 as size, t.hash, t.width, t.height, coalesce(nullif(t."originalFilename", ''), nullif(t.title, ''), t.filename) as name,
      t."isPublic" is true as "isPublic", t."tenant_Id" as "tenantId",
      (extract(epoch from coalesce(t."updatedAt", t."createdAt")) * 1000)::float8 as modified, (${rule.text}) is true as readable
    from "svc_File" t where t.id = $1`
  return withFreshPlan(deps.catalog, async () => (await deps.db.runQuick<AssetRow>(text, rule.values))[0])
}

/** The row of svc_UserRole that gives a caller the role, at its tenant where there are tenants. */
async function membershipId(
  { db, config }: Reads & Configuration,
  { userId, role, tenantId }: Pick<Caller, 'userId' | 'role' | 'tenantId'>,
): Promise<string | undefined> {
  const values: ParamValue[] = [userId ?? null, role.id, tenantId ?? null, config.tenancy.enabled]
  const [row] = await db.runQuick<{ id: string }>(
    `select id from "svc_UserRole" where "user_Id" = $1::uuid and "role_Id" = $2::uuid
       and (not $4::boolean or "tenant_Id" is not distinct from $3::uuid) order by id limit 1`,
    values,
  )
  return row?.id
}

/** The principal of a membership now; undefined if it has ended or its user is not active. */
async function principalRow(deps: Reads & CurrentCatalog, membership: string): Promise<PrincipalRow | undefined> {
  return withFreshPlan(deps.catalog, async () => {
    const [row] = await deps.db.runQuick<PrincipalRow>(principalOfMembership(deps.catalog.current()), [membership])
    return row
  })
}

const principalOfMembership = oncePer(
  (catalog: Catalog) => `
    select ur."user_Id" as "userId", ur."tenant_Id" as "tenantId", ${principalSql(catalog)}
    from "svc_UserRole" ur
    join "svc_User" u on u.id = ur."user_Id" and u.status = 'active'
    join "svc_Role" r on r.id = ur."role_Id"
    left join "svc_Tenant" t on t.id = ur."tenant_Id"
    where ur.id = $1::uuid`,
)

/** The bytes of a variant; undefined where it is not whole, or not there. */
async function variantSize({ db }: Reads, storage: string, key: string): Promise<number | undefined> {
  const [row] = await db.runQuick<{ size: number }>(
    `select size::float8 as size from "svc_FileVariant" where storage = $1 and key = $2 and size > 0`,
    [storage, key],
  )
  return row?.size
}

/** The capabilities to find a file and decide who may read it. */
export type AssetReads = Reads & Clock & Configuration & CurrentAccess & CurrentCatalog & CurrentSettings & Logs

/** The further capabilities to make and keep variants. */
export type AssetWrites = AssetReads & UnloggedWrites & StorageServices & ImageProcessing

/** The bytes that an answer is made of. */
export type AssetContent = {
  readonly size: number
  /** Undefined where the storage has lost them. */
  read(range?: ByteRange): Promise<Readable | Buffer | undefined>
  isThere(): Promise<boolean>
}

/** The user for whom a variant is made, where that takes a while. */
type Waiting = { readonly turn: string; readonly gone: AbortSignal | undefined }

export type Contents = {
  original(asset: AssetRow): AssetContent
  /**
   * The transformed image: from memory, from storage, or made now, once for all who wait. 400, 422 and 503 as
   * `Images.transform`; 404 where the original is gone.
   */
  variant(asset: AssetRow, transform: Transform, waiting: Waiting): Promise<AssetContent>
  /** Its content was not where it should be, so that it is to be made anew. */
  lost(asset: AssetRow, transform: Transform): Promise<void>
}

/** Small content is kept: its key never stands for another one. */
const keptBytes = 32 * 1_048_576
const keptEach = 128 * 1024
const keptMs = 3_600_000

type KeptImage = { readonly bytes: Buffer }

/** Those of a process. */
export const contentsOf = oncePer(openContents)

/** All of it, in memory; undefined where the storage has lost it. */
export async function wholeOf(content: AssetContent): Promise<Buffer | undefined> {
  const found = await content.read()
  return found === undefined || Buffer.isBuffer(found) ? found : buffer(found)
}

function openContents(deps: AssetWrites): Contents {
  const kept = openBoundedMemory<KeptImage>({
    maxBytes: keptBytes,
    maxEntryBytes: keptEach,
    sizeOf: ({ bytes }, key) => bytes.length + key.length + 100,
  })
  const making = openSharedWork<AssetContent>()
  const stored = (asset: AssetRow, key: string, size: number): AssetContent => {
    const storage = deps.storages.holding(asset.storage)
    return {
      size,
      read: (range) => readStored({ storage, key, size, kept }, range),
      isThere: async () => kept.has(nameOf(storage.name, key)) || (await storage.stat(key)) !== undefined,
    }
  }
  return {
    original: (asset) => stored(asset, originalKey(asset), asset.size),
    async variant(asset, transform, waiting) {
      checkImage(asset, deps.config.assets.maxInputPixels)
      const key = variantKey(asset, transform)
      const found = kept.get(nameOf(asset.storage, key))
      if (found !== undefined) return inMemory(found.bytes)
      const size = await variantSize(deps, asset.storage, key)
      if (size !== undefined) return stored(asset, key, size)
      return making.do(nameOf(asset.storage, key), waiting.gone, (signal) =>
        make(deps, { asset, transform, key, kept, stored, turn: waiting.turn, signal }),
      )
    },
    lost: (asset, transform) => forgetVariant(deps, { storage: asset.storage, key: variantKey(asset, transform) }),
  }
}

const nameOf = (storage: string, key: string): string => `${storage}/${key}`
const originalKey = ({ folder, filename }: AssetRow): string => keyOf(folder, filename)

/** Beside the original, by a name that says what it was made of. */
export function variantKey({ folder, filename }: Pick<AssetRow, 'folder' | 'filename'>, transform: Transform): string {
  const base = filename.slice(0, filename.length - extname(filename).length)
  return keyOf(folder, `${base}_processed_${digestOf(transform)}.${extensionOf[transform.format]}`)
}

/** Spares a process what cannot succeed. */
function checkImage({ type, typeProven, width, height }: AssetRow, maxInputPixels: number): void {
  if (!typeProven || /^image\/(svg|hei[cf])/.test(type))
    throw new AppError(422, 'The image cannot be processed', { code: 'IMAGE_NOT_PROCESSED' })
  if ((width ?? 0) * (height ?? 0) > maxInputPixels)
    throw new AppError(400, `The image has more than ${maxInputPixels} pixels`, { code: 'TOO_MANY_PIXELS' })
}

type ImagePlace = {
  readonly storage: Storage
  readonly key: string
  readonly size: number
  readonly kept: BoundedMemory<KeptImage>
}

async function readStored(
  { storage, key, size, kept }: ImagePlace,
  range?: ByteRange,
): Promise<Readable | Buffer | undefined> {
  const name = nameOf(storage.name, key)
  const found = kept.get(name)
  if (found !== undefined) return partOf(found.bytes, range)
  if (size > keptEach - name.length - 100) return storage.read(key, range)
  const content = await storage.read(key)
  if (content === undefined) return undefined
  const bytes = await buffer(content)
  kept.set(name, { bytes }, keptMs)
  return partOf(bytes, range)
}

const inMemory = (bytes: Buffer): AssetContent => ({
  size: bytes.length,
  read: async (range) => partOf(bytes, range),
  isThere: async () => true,
})

const partOf = (bytes: Buffer, range: ByteRange | undefined): Buffer =>
  range === undefined ? bytes : bytes.subarray(range.start, range.end + 1)

type Making = {
  readonly asset: AssetRow
  readonly transform: Transform
  readonly key: string
  readonly kept: BoundedMemory<KeptImage>
  readonly stored: (asset: AssetRow, key: string, size: number) => AssetContent
  readonly turn: string
  readonly signal: AbortSignal
}

async function make(
  deps: AssetWrites,
  { asset, transform, key, kept, stored, turn, signal }: Making,
): Promise<AssetContent> {
  const storage = deps.storages.holding(asset.storage)
  const original = originalKey(asset)
  const read = async (range?: ByteRange): Promise<Readable> => {
    const found = await storage.read(original, range)
    if (found === undefined) throw new AppError(404, 'File not found')
    return found
  }
  return deps.images.transform({ size: asset.size, type: asset.type, read }, transform, {
    turn,
    signal,
    async isMade() {
      const size = await variantSize(deps, asset.storage, key)
      return size === undefined ? undefined : stored(asset, key, size)
    },
    async use(path) {
      const { size } = await stat(path)
      const bytes = size <= keptEach ? await readFile(path) : undefined
      const isStored = await store(deps, { asset, storage, key, original, path, size, transform })
      if (bytes !== undefined) {
        if (isStored) kept.set(nameOf(storage.name, key), { bytes }, keptMs)
        return inMemory(bytes)
      }
      return isStored ? stored(asset, key, size) : inMemory(await readFile(path))
    },
  })
}

type Storing = {
  readonly asset: AssetRow
  readonly storage: Storage
  readonly key: string
  readonly original: string
  readonly path: string
  readonly size: number
  readonly transform: Transform
}

/**
 * Keeps a variant for the next request. False where it is not kept: another process is writing it, the file is gone, or
 * the storage does not take it, which is no reason to keep it from those who wait.
 */
async function store(
  deps: AssetWrites,
  { asset, storage, key, original, path, size, transform }: Storing,
): Promise<boolean> {
  const claim = await claimVariant(deps, { storage: asset.storage, key, original }, asset.id)
  if (claim === undefined) return false
  try {
    // A killed process may have left a part of it.
    await storage.delete(key)
    await storage.write(key, createReadStream(path), { type: `image/${transform.format}` })
  } catch (error) {
    deps.log.warn({ err: error, fileId: asset.id }, 'a transform could not be stored; it will be made again')
    await forgetVariant(deps, claim)
    return false
  }
  if (!(await completeVariant(deps, claim, size))) {
    await storage.delete(key)
    return false
  }
  await removeSurplus(deps, storage, claim)
  return true
}

async function removeSurplus(deps: AssetWrites, storage: Storage, claim: VariantClaim): Promise<void> {
  const surplus = await surplusVariants(deps, claim, deps.config.assets.variantsPerFile)
  for (const key of surplus) {
    await storage.delete(key)
    await forgetVariant(deps, { storage: claim.storage, key })
  }
}

/** Does what several ask for at the same time once. It is given up when the last of them has gone. */
function openSharedWork<T>() {
  type Shared = { readonly result: Promise<T>; readonly left: AbortController; waiting: number }
  const running = new Map<string, Shared>()
  const begin = (name: string, work: (signal: AbortSignal) => Promise<T>): Shared => {
    const left = new AbortController()
    // Several callers share it: its statements must not end when the first of them leaves.
    const nobody = { caller: 'assets', gone: undefined, places: 0 }
    const result = workFor(nobody, () => work(left.signal)).finally(() => {
      // Work that is given up may end after its successor has begun.
      if (running.get(name) === shared) running.delete(name)
    })
    const shared: Shared = { result, left, waiting: 0 }
    running.set(name, shared)
    return shared
  }
  return {
    async do(name: string, gone: AbortSignal | undefined, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
      const found = running.get(name)
      const shared = found === undefined || found.left.signal.aborted ? begin(name, work) : found
      shared.waiting += 1
      const leave = () => {
        shared.waiting -= 1
        if (shared.waiting === 0) shared.left.abort(clientGone())
      }
      if (gone?.aborted) leave()
      gone?.addEventListener('abort', leave, { once: true })
      try {
        return await shared.result
      } finally {
        gone?.removeEventListener('abort', leave)
      }
    },
  }
}

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
  const asset = await signableAsset(deps, caller, id)
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
