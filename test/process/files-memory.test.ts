import { createHash } from 'node:crypto'
import { readFile, rm, stat } from 'node:fs/promises'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { json } from 'node:stream/consumers'
import { afterAll, expect, it } from 'vitest'
import { startCluster } from '../support/cluster.ts'

/** What a large upload costs a web process. */

const megabyte = Buffer.alloc(1024 * 1024, 'a line of a large file\n')
const base = join(tmpdir(), `daybook-large-${process.pid}`)

afterAll(() => rm(base, { recursive: true, force: true }))

it.runIf(process.platform === 'linux')('200 MB pass through in less than 60 MB', async () => {
  const cluster = await startCluster({ env: { MAX_UPLOAD_FILE_SIZE: '300', LOCAL_STORAGE_PATH: base } })
  const [web] = cluster.web
  const rss = async () => Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${web!.pid}/status`, 'utf8'))![1]) / 1024
  const send = (megabytes: number) => upload(web!.address, cluster.token, megabytes)
  // What is loaded by the first upload is not what an upload costs.
  await send(1)
  const measured = async () => {
    const before = await rss()
    let most = before
    const sampling = setInterval(async () => {
      most = Math.max(most, await rss())
    }, 50)
    const id = await send(200)
    clearInterval(sampling)
    process.stderr.write(`200 MB: ${before.toFixed(0)} MB before, ${most.toFixed(0)} MB at most\n`)
    return { id, grown: most - before }
  }
  let { id, grown } = await measured()
  // A busy machine may keep the collector waiting; what an upload needs, it needs each time.
  for (let again = 0; again < 2 && grown >= 60; again += 1) ({ id, grown } = await measured())
  const { data } = (await web!.call('GET', `/files/${id}`)).body
  const digest = createHash('sha256')
  for (let i = 0; i < 200; i += 1) digest.update(megabyte)
  expect(data).toMatchObject({ size: 200 * megabyte.length, hash: digest.digest('hex') })
  expect((await stat(join(base, data.filename))).size).toBe(data.size)
  expect(grown).toBeLessThan(60)
})

function upload(address: string, token: string, megabytes: number): Promise<string> {
  const head =
    '--b\r\ncontent-disposition: form-data; name="file"; filename="large.txt"\r\ncontent-type: text/plain\r\n\r\n'
  const tail = '\r\n--b--\r\n'
  async function* body() {
    yield head
    for (let i = 0; i < megabytes; i += 1) yield megabyte
    yield tail
  }
  return new Promise((resolve, reject) => {
    const sent = request(`${address}/files`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${token}`,
        'content-type': 'multipart/form-data; boundary=b',
        'content-length': head.length + megabytes * megabyte.length + tail.length,
      },
    })
    sent.on('error', reject)
    sent.on('response', (response) => {
      json(response).then((answer) => {
        const { data } = answer as { data?: string }
        return data === undefined ? reject(new Error(JSON.stringify(answer))) : resolve(data)
      }, reject)
    })
    Readable.from(body()).pipe(sent)
  })
}
