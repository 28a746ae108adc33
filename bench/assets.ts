import { createHash, randomBytes, randomUUID } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import { get } from 'node:http'
import { join } from 'node:path'
import type pg from 'pg'
import sharp, { type Sharp } from 'sharp'
import type { Side } from './cases.ts'
import type { Figure } from './figures.ts'
import { shoot } from './load.ts'
import { meterOf } from './meter.ts'
import type { BenchOptions } from './options.ts'
import { readCases } from './reads.ts'
import { type Contest, median } from './rounds.ts'

/** A file that both sides have: as an asset with a row, and by its name in the ceiling's directory. */
type Stored = { readonly id: string; readonly name: string }

type Place = { readonly sql: pg.Client; readonly filesDir: string }

/**
 * A request to a side: its path, and the headers that the answer depends on. `of`: the server, if not the side itself.
 */
type Wanted = {
  readonly path: string
  readonly headers?: Readonly<Record<string, string>>
  readonly status?: number
  readonly of?: Side
}

/** Answers from storage, and a transform against the library alone. */
export async function measureAssets(
  contest: Contest,
  place: Place,
  { quick: isQuick, products }: Pick<BenchOptions, 'quick' | 'products'>,
): Promise<readonly Figure[]> {
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
  const same = await unchanged(contest, of(small))
  const read = {
    path: readCases(products)[0]!.request({ n: 1, as: contest.accounts.admin, role: 'admin', kind: 'daybook' }).path,
  }
  return [
    ...(await rate(contest, 'asset, 304', same, times * 300)),
    ...(await rate(contest, 'asset, 304, beside W1', { ...same, ceiling: { ...read, of: 'daybook' } }, times * 300)),
    ...(await rate(contest, 'asset, thumbnail', thumbnail, times * 300)),
    await throughput(contest, 'asset, download of 1 MB', of(one), { times: times * 20, atOnce: 8 }),
    await throughput(contest, 'asset, download of 100 MB', of(hundred), { times: Math.ceil(times / 3), atOnce: 1 }),
    ...(await transforms(contest, photo, picture, isQuick ? 3 : 20)),
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

/** How many rounds a side answers before V8 has compiled what they run through. */
const roundsUntilCompiled = 6

/** Requests per second, and what one takes of the processors, PostgreSQL's part included. */
async function rate(contest: Contest, title: string, both: Both, amount: number): Promise<readonly Figure[]> {
  const cpu = new Map<Side, number[]>()
  const shot = async (side: Side) => {
    const { path, headers = {}, status = 200, of = side } = wantedBy(both, side)
    const server = contest.servers[of]!
    const requests = [
      { setupRequest: (request: object) => ({ ...request, path, headers: { ...headers, ...bearer(contest) } }) },
    ]
    const meters = [meterOf(server.pid), meterOf(contest.databasePid, 'with its children')]
    const before = meters.map((meter) => meter() ?? 0)
    const shots = { amount, connections: 16, status, requests }
    const round = await shoot(server, contest.accounts.admin, shots as never)
    if (round.errors > 0) throw new Error(`${title}: ${round.errors} wrong answers of ${of}`)
    const spent = meters.reduce((sum, meter, n) => sum + (meter() ?? 0) - before[n]!, 0)
    cpu.set(side, [...(cpu.get(side) ?? []), (spent * 1e6) / amount])
    return round.perSecond
  }
  for (const side of sidesOf(contest)) for (let n = 0; n < roundsUntilCompiled; n += 1) await shot(side)
  cpu.clear()
  const figures = await inTurns(contest, shot)
  const spent = Object.fromEntries([...cpu].map(([side, values]) => [side, median(values)]))
  return [
    { id: 'P12', title, unit: 'requests/s', ...figures },
    { id: 'P12', title: `${title}: processor time of one`, unit: 'µs', ...spent },
  ]
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

/**
 * Milliseconds; here less is better. The ceiling is the library, in this process and with all cores. Daybook's processes for
 * images yield to all others, so on a busy machine only their processor time says something.
 */
async function transforms(contest: Contest, photo: Buffer, { id }: Stored, times: number): Promise<readonly Figure[]> {
  const qualities = Array.from({ length: times }, (_, n) => 60 + (n % 40))
  const timed = async (meter: () => number, work: (quality: number) => Promise<unknown>) => {
    const took: number[] = []
    const before = meter()
    for (const quality of qualities) {
      const began = performance.now()
      await work(quality)
      took.push(performance.now() - began)
    }
    return { ms: median(took), cpu: ((meter() - before) * 1000) / times }
  }
  const seconds = () => {
    const { user, system } = process.cpuUsage()
    return (user + system) / 1e6
  }
  const ofDaybook = meterOf(contest.servers.daybook!.pid, 'with its children')
  const library = (quality: number) => sharp(photo).autoOrient().resize(800).webp({ quality }).toBuffer()
  await library(50)
  await download(contest, 'daybook', { path: `/assets/${id}?width=800&format=webp&quality=50` })
  const ceiling = await timed(seconds, library)
  const daybook = await timed(
    () => ofDaybook() ?? 0,
    (quality) => download(contest, 'daybook', { path: `/assets/${id}?width=800&format=webp&quality=${quality}` }),
  )
  const title = '2000 × 1500 to 800 webp, beside the library alone'
  return [
    { id: 'P12', title, unit: 'ms', ceiling: ceiling.ms, daybook: daybook.ms },
    { id: 'P12', title: `${title}: processor time`, unit: 'ms', ceiling: ceiling.cpu, daybook: daybook.cpu },
  ]
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
