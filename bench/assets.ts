import { createHash, randomBytes, randomUUID } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import { get } from 'node:http'
import { join } from 'node:path'
import type pg from 'pg'
import sharp, { type Sharp } from 'sharp'
import type { Side } from './cases.ts'
import type { Figure } from './figures.ts'
import { shoot } from './load.ts'
import { type Contest, median } from './rounds.ts'

/** A file that both sides have: as an asset with a row, and by its name in the ceiling's directory. */
type Stored = { readonly id: string; readonly name: string }

type Place = { readonly sql: pg.Client; readonly filesDir: string }

/** What is asked of a side: its path, and what else the answer depends on. */
type Wanted = { readonly path: string; readonly headers?: Readonly<Record<string, string>>; readonly status?: number }

/** Answers from storage, and a transform against the library alone. */
export async function measureAssets(contest: Contest, place: Place, isQuick: boolean): Promise<readonly Figure[]> {
  const photo = await noise(2000, 1500).jpeg().toBuffer()
  const small = await store(place, 'thumb.webp', await sharp(photo).resize(200).webp().toBuffer())
  const picture = await store(place, 'picture.jpg', photo)
  const [one, hundred] = [
    await store(place, 'one.bin', randomBytes(2 ** 20)),
    await store(place, 'hundred.bin', randomBytes(100 * 2 ** 20)),
  ]
  const of = ({ id, name }: Stored) => ({ ceiling: { path: `/static/${name}` }, daybook: { path: `/assets/${id}` } })
  const thumbnail = { ...of(small), daybook: { path: `/assets/${picture.id}?width=200&format=webp` } }
  const times = isQuick ? 1 : 10
  return [
    await rate(contest, 'asset, 304', await unchanged(contest, of(small)), times * 300),
    await rate(contest, 'asset, thumbnail from storage', thumbnail, times * 300),
    await throughput(contest, 'asset, download of 1 MB', of(one), { times: times * 20, atOnce: 8 }),
    await throughput(contest, 'asset, download of 100 MB', of(hundred), { times: Math.ceil(times / 3), atOnce: 1 }),
    await transforms(contest, photo, picture, isQuick ? 3 : 20),
  ]
}

async function store({ sql, filesDir }: Place, name: string, content: Buffer): Promise<Stored> {
  const id = randomUUID()
  const filename = `${id}-${name}`
  await mkdir(filesDir, { recursive: true })
  await writeFile(join(filesDir, filename), content)
  const type = /jpg$/.test(name) ? 'image/jpeg' : /webp$/.test(name) ? 'image/webp' : 'application/zip'
  await sql.query(
    `insert into "svc_File" (id, title, filename, "originalFilename", type, "typeProven", size, hash, storage, "isPublic", "createdAt", "updatedAt")
     values ($1, $2, $3, $2, $4, true, $5, $6, 'local', false, now(), now())`,
    [id, name, filename, type, content.length, createHash('sha256').update(content).digest('hex')],
  )
  return { id, name: filename }
}

function noise(width: number, height: number): Sharp {
  return sharp(randomBytes(width * height * 3), { raw: { width, height, channels: 3 } }).blur(2)
}

type Both = Readonly<Record<'ceiling' | 'daybook', Wanted>>
const wantedBy = (both: Both, side: Side): Wanted => both[side === 'ceiling' ? 'ceiling' : 'daybook']
const sidesOf = ({ servers }: Contest) => (Object.keys(servers) as Side[]).filter((side) => side !== 'cached')

/** The same with the tag that each side gave before. */
async function unchanged(contest: Contest, both: Both): Promise<Both> {
  const tagged = async (side: 'ceiling' | 'daybook'): Promise<Wanted> => {
    const { headers } = await download(contest, side, both[side])
    return { ...both[side], headers: { 'if-none-match': headers.etag! }, status: 304 }
  }
  return { ceiling: await tagged('ceiling'), daybook: await tagged('daybook') }
}

/** Requests per second. */
async function rate(contest: Contest, title: string, both: Both, amount: number): Promise<Figure> {
  const figures = await inTurns(contest, async (side) => {
    const { path, headers = {}, status = 200 } = wantedBy(both, side)
    const requests = [
      { setupRequest: (request: object) => ({ ...request, path, headers: { ...headers, ...bearer(contest) } }) },
    ]
    const round = await shoot(contest.servers[side]!, contest.accounts.admin, {
      amount,
      connections: 16,
      status,
      requests,
    } as never)
    if (round.errors > 0) throw new Error(`${title}: ${round.errors} wrong answers of ${side}`)
    return round.perSecond
  })
  return { id: 'P12', title, unit: 'requests/s', ...figures }
}

/** Megabytes per second. */
async function throughput(
  contest: Contest,
  title: string,
  both: Both,
  { times, atOnce }: { times: number; atOnce: number },
): Promise<Figure> {
  const figures = await inTurns(contest, async (side) => {
    let left = times
    let bytes = 0
    const began = performance.now()
    const next = async (): Promise<void> => {
      while (left > 0) {
        left -= 1
        bytes += (await download(contest, side, wantedBy(both, side))).bytes
      }
    }
    await Promise.all(Array.from({ length: atOnce }, next))
    return bytes / 2 ** 20 / ((performance.now() - began) / 1000)
  })
  return { id: 'P12', title, unit: 'MB/s', ...figures }
}

/** Milliseconds; here less is better. The ceiling is the library, in this process and with all cores. */
async function transforms(contest: Contest, photo: Buffer, { id }: Stored, times: number): Promise<Figure> {
  const qualities = Array.from({ length: times }, (_, n) => 60 + (n % 40))
  const timed = async (work: (quality: number) => Promise<unknown>) => {
    const took: number[] = []
    for (const quality of qualities) {
      const began = performance.now()
      await work(quality)
      took.push(performance.now() - began)
    }
    return median(took)
  }
  const library = (quality: number) => sharp(photo).autoOrient().resize(800).webp({ quality }).toBuffer()
  await library(50)
  await download(contest, 'daybook', { path: `/assets/${id}?width=800&format=webp&quality=50` })
  const ceiling = await timed(library)
  const daybook = await timed((quality) =>
    download(contest, 'daybook', { path: `/assets/${id}?width=800&format=webp&quality=${quality}` }),
  )
  return { id: 'P12', title: '2000 × 1500 to 800 webp, the library alone', unit: 'ms', ceiling, daybook }
}

/** Medians of rounds in which the sides take turns, after one that does not count. */
async function inTurns(contest: Contest, measure: (side: Side) => Promise<number>) {
  const took = new Map<Side, number[]>(sidesOf(contest).map((side) => [side, []]))
  for (const side of took.keys()) await measure(side)
  for (let round = 0; round < contest.rounds; round += 1)
    for (const [side, values] of took) values.push(await measure(side))
  return Object.fromEntries([...took].map(([side, values]) => [side, median(values)]))
}

const bearer = ({ accounts }: Contest) => ({ authorization: `Bearer ${accounts.admin.token}` })

/** Reads an answer to its end and counts it. */
function download(contest: Contest, side: Side, { path, headers = {}, status = 200 }: Wanted) {
  return new Promise<{ bytes: number; headers: Readonly<Record<string, string>> }>((resolve, reject) => {
    const url = new URL(path, contest.servers[side]!.url)
    const request = get(url, { headers: { ...headers, ...bearer(contest) } }, (response) => {
      let bytes = 0
      response.on('data', (piece: Buffer) => {
        bytes += piece.length
      })
      response.on('error', reject)
      response.on('end', () =>
        response.statusCode === status
          ? resolve({ bytes, headers: response.headers as Record<string, string> })
          : reject(new Error(`${path} of ${side} is ${response.statusCode}`)),
      )
    })
    request.on('error', reject)
  })
}
