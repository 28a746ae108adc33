import { createHash, randomBytes } from 'node:crypto'
import { readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type DetailedError, Upload } from 'tus-js-client'
import { afterAll, expect, it } from 'vitest'
import { removeDueContent, verifyFiles } from '../../src/features/files/files/files.ts'
import { openRuntime } from '../../src/process/runtime.ts'
import { startCluster, type Web } from '../support/cluster.ts'
import { silent } from '../support/log.ts'
import { createDatabase } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'

const base = join(tmpdir(), `daybook-tus-${process.pid}`)
const megabyte = 1024 * 1024

afterAll(() => rm(base, { recursive: true, force: true }))

it('a resumable upload outlives its web process, restarted or not', async () => {
  const env = { LOCAL_STORAGE_PATH: base, MAX_UPLOAD_FILE_SIZE: '100' }
  const database = await createDatabase()
  const cluster = await startCluster({ database, web: 2, env })
  const [first, second] = cluster.web as [Web, Web]
  const content = randomBytes(40 * megabyte)
  const retried: (number | undefined)[] = []
  const begun = (
    to: { endpoint: string } | { uploadUrl: string },
    onProgress: (upload: Upload, sent: number) => void,
  ) => {
    const done = Promise.withResolvers<string | undefined>()
    const upload: Upload = new Upload(content as never, {
      ...to,
      headers: { authorization: `Bearer ${cluster.token}` },
      metadata: { filename: 'big.bin' },
      chunkSize: 4 * megabyte,
      retryDelays: [100, 500, 1000, 2000, 4000, 8000, 8000, 8000],
      onShouldRetry: (error: Error) => {
        retried.push((error as DetailedError).originalResponse?.getStatus())
        return true
      },
      onProgress: (sent) => onProgress(upload, sent),
      onError: done.reject,
      onSuccess: ({ lastResponse }) => done.resolve(lastResponse.getHeader('x-file-id')),
    })
    upload.start()
    return { upload, done: done.promise }
  }
  // Its process is killed and comes back; the client goes on by itself. Then it is stopped.
  let killed: Promise<unknown> | undefined
  const stopped = Promise.withResolvers<string>()
  const { done } = begun({ endpoint: `${first.address}/files/tus` }, (upload, sent) => {
    if (sent > 10 * megabyte) killed ??= first.kill('SIGKILL').then(() => first.restart())
    if (sent > 26 * megabyte) void upload.abort().then(() => stopped.resolve(upload.url!))
  })
  done.catch(stopped.reject)
  const path = new URL(await stopped.promise).pathname
  await killed
  expect(retried.length).toBeGreaterThan(0)
  // At another one, while the first is gone for good.
  await first.kill('SIGKILL')
  let from: number | undefined
  const rest = begun({ uploadUrl: `${second.address}${path}` }, (_upload, sent) => {
    from ??= sent
  })
  const id = await rest.done
  expect(from).toBeGreaterThanOrEqual(16 * megabyte)
  const { data } = (await second.call('GET', `/files/${id}`)).body
  expect(data).toMatchObject({ size: content.length, hash: createHash('sha256').update(content).digest('hex') })
  const runtime = await openRuntime({ config: testConfig(database.url, env), log: silent, name: 'test', worker: true })
  expect((await verifyFiles(runtime, { hashes: true })).differences).toEqual([])
  await cluster.sql(`update "svc_FileRemoval" set "dueAt" = now()`)
  await removeDueContent(runtime, new AbortController().signal)
  await runtime.close()
  expect(await readdir(base)).toEqual([data.filename])
})
