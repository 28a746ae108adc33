import { Readable } from 'node:stream'
import type * as Client from '@aws-sdk/client-s3'
import type { S3StorageService } from '../config/families.ts'
import { onFirstUse } from '../language/once.ts'

const sdk = onFirstUse<typeof import('@aws-sdk/client-s3')>('@aws-sdk/client-s3')
const uploads = onFirstUse<typeof import('@aws-sdk/lib-storage')>('@aws-sdk/lib-storage')
const presigner = onFirstUse<typeof import('@aws-sdk/s3-request-presigner')>('@aws-sdk/s3-request-presigner')

/** The content under a key. */
export type StoredObject = { readonly size: number; readonly modifiedAt: Date }
/** The first byte and the last one. */
export type ByteRange = { readonly start: number; readonly end: number }
/** Properties of the answer of a presigned address. */
export type Presigned = { readonly expiresInSeconds: number; readonly type?: string; readonly disposition?: string }

/** Of one upload at most so much is in memory, twice. S3 takes 10,000 parts. Bytes. */
const partSize = 8 * 1024 * 1024
const atOnce = 2

/** How long S3 may take to be reached, to begin its answer, and between two pieces of it. */
const limitsMs = { connectionTimeout: 3000, requestTimeout: 20_000, socketTimeout: 20_000 }

/**
 * The objects of a bucket, as content. The SDK (200 ms, 36 MB) is loaded by the first use. It repeats a request twice
 * where the server says that it may; a body that has begun is not asked for again.
 */
export function openBucket(service: S3StorageService, limits = limitsMs) {
  const { bucket } = service
  let opened: Client.S3Client | undefined
  const client = (): Client.S3Client => {
    opened ??= newClient(service, limits)
    return opened
  }
  const object = (key: string) => ({ Bucket: bucket, Key: key })
  const head = async (key: string): Promise<StoredObject | undefined> => {
    const { HeadObjectCommand } = sdk()
    const found = await orNothing(client().send(new HeadObjectCommand(object(key))))
    return found && { size: found.ContentLength ?? 0, modifiedAt: found.LastModified ?? new Date(0) }
  }
  return {
    async write(key: string, content: AsyncIterable<Uint8Array>, { type }: { readonly type?: string } = {}) {
      const upload = new (uploads().Upload)({
        client: client(),
        params: {
          ...object(key),
          Body: Readable.from(content, { objectMode: false }),
          ...(type !== undefined && { ContentType: type }),
        },
        partSize,
        queueSize: atOnce,
      })
      await upload.done()
    },
    async read(key: string, range?: ByteRange): Promise<Readable | undefined> {
      const { GetObjectCommand } = sdk()
      const part = range && { Range: `bytes=${range.start}-${range.end}` }
      const found = await orNothing(client().send(new GetObjectCommand({ ...object(key), ...part })))
      return found?.Body as Readable | undefined
    },
    stat: head,
    async copy(from: string, to: string) {
      const { CopyObjectCommand } = sdk()
      const source = `${bucket}/${from.split('/').map(encodeURIComponent).join('/')}`
      await client().send(new CopyObjectCommand({ ...object(to), CopySource: source }))
    },
    async delete(key: string) {
      const { DeleteObjectCommand } = sdk()
      await orNothing(client().send(new DeleteObjectCommand(object(key))))
    },
    list: (prefix: string) => listObjects(client(), bucket, prefix),
    async presign(key: string, { expiresInSeconds, type, disposition }: Presigned): Promise<string> {
      const { GetObjectCommand } = sdk()
      const answered = {
        ...(type !== undefined && { ResponseContentType: type }),
        ...(disposition !== undefined && { ResponseContentDisposition: disposition }),
      }
      const command = new GetObjectCommand({ ...object(key), ...answered })
      return presigner().getSignedUrl(client(), command, { expiresIn: expiresInSeconds })
    },
    close: () => opened?.destroy(),
  }
}

function newClient(
  { accessKeyId, secretAccessKey, region, endpoint }: S3StorageService,
  limits: typeof limitsMs,
): Client.S3Client {
  return new (sdk().S3Client)({
    region,
    credentials: { accessKeyId, secretAccessKey },
    // Compatible servers have no host name per bucket.
    ...(endpoint !== undefined && { endpoint, forcePathStyle: true }),
    // Many compatible servers know none of the newer checksums.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: { ...limits, throwOnRequestTimeout: true },
    maxAttempts: 3,
  })
}

async function* listObjects(
  client: Client.S3Client,
  bucket: string,
  prefix: string,
): AsyncGenerator<StoredObject & { readonly key: string }> {
  const { ListObjectsV2Command } = sdk()
  let next: string | undefined
  do {
    const page: Client.ListObjectsV2CommandOutput = await client.send(
      new ListObjectsV2Command({ Bucket: bucket, Prefix: prefix, ...(next && { ContinuationToken: next }) }),
    )
    for (const { Key, Size = 0, LastModified = new Date(0) } of page.Contents ?? [])
      if (Key !== undefined) yield { key: Key, size: Size, modifiedAt: LastModified }
    next = page.NextContinuationToken
  } while (next !== undefined)
}

/** Undefined for an object that is not there. */
async function orNothing<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked
  } catch (error) {
    const { name, $metadata } = error as { name?: string; $metadata?: { httpStatusCode?: number } }
    // Of a bucket that is missing S3 says so by another name.
    if (name === 'NoSuchKey' || name === 'NotFound' || ($metadata?.httpStatusCode === 404 && name !== 'NoSuchBucket'))
      return undefined
    throw error
  }
}
