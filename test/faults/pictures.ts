import { randomUUID } from 'node:crypto'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { type Cluster, request, startCluster, type Web } from '../support/cluster.ts'
import { noise } from '../support/images.ts'
import { seededRandom } from '../support/ledger.ts'
import { waitFor } from '../support/wait.ts'
import type { Result } from './scenario.ts'

export type Size = {
  readonly seconds: number
  /** Clients, each of which asks for sizes that no other client asks for. */
  readonly clients: number
  /** Megapixels of the picture. */
  readonly megapixels: number
  /** Whether the figures must be those that are promised; only where nothing else runs. */
  readonly isTimed: boolean
}

/** How many times longer a read by key may take, and megabytes of the web process. */
const promised = { lightTimes: 3, rss: 400 }

/**
 * A hundred clients ask for a hundred sizes of one large picture, and for others as soon as they are answered or refused,
 * beside clients that read single rows, who must hardly notice.
 */
export async function runPictures(seed: number, size: Size): Promise<Result> {
  const directory = await mkdtemp(join(tmpdir(), 'daybook-pictures-'))
  try {
    const cluster = await startCluster({
      env: { LOCAL_STORAGE_PATH: directory, ASSET_TEMP_DIR: join(directory, 'temp') },
    })
    const [web] = cluster.web as [Web]
    const picture = await storePicture(cluster, directory, size.megapixels)
    const run: Run = { web, cluster, picture, random: seededRandom('pictures', seed) }
    await phase(run, { seconds: Math.min(1, size.seconds), clients: 0 })
    const alone = await phase(run, { seconds: size.seconds / 3, clients: 0 })
    const crowded = await phase(run, { seconds: size.seconds, clients: size.clients })
    const faults = [
      ...wrong('alone', alone),
      ...wrong('crowded', crowded),
      ...(await stillWorks(run, size.seconds > 5)),
    ]
    if (size.isTimed) faults.push(...late(alone, crowded))
    return { faults, figures: { ...figures('alone', alone), ...figures('crowded', crowded) } }
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

type Run = { readonly web: Web; readonly cluster: Cluster; readonly picture: string; readonly random: () => number }
type Seen = { readonly ms: number; readonly status: number; readonly code: string | undefined }
type Phase = { readonly light: readonly Seen[]; readonly pictures: readonly Seen[]; readonly rss: number }

/** 3 : 2, as a camera makes it. */
async function storePicture({ sql }: Cluster, directory: string, megapixels: number): Promise<string> {
  const height = Math.round(Math.sqrt((megapixels * 1e6 * 2) / 3))
  const width = Math.round((height * 3) / 2)
  const content = await noise(width, height).jpeg({ quality: 80 }).toBuffer()
  const id = randomUUID()
  await mkdir(directory, { recursive: true })
  await writeFile(join(directory, `${id}-picture.jpg`), content)
  await sql(`insert into "svc_File" (id, title, filename, "originalFilename", type, "typeProven", size, storage, "isPublic", width, height)
    values ('${id}', 'picture', '${id}-picture.jpg', 'picture.jpg', 'image/jpeg', true, ${content.length}, 'local', true, ${width}, ${height})`)
  return id
}

async function phase(run: Run, { seconds, clients }: { seconds: number; clients: number }): Promise<Phase> {
  const { web, cluster, picture, random } = run
  const end = performance.now() + seconds * 1000
  const light: Seen[] = []
  const pictures: Seen[] = []
  const ask = async (seen: Seen[], path: string) => {
    const began = performance.now()
    const { status, code } = await answerOf(web, cluster.token, path)
    seen.push({ ms: performance.now() - began, status, code })
  }
  const again = async (pauseMs: number, once: () => Promise<void>) => {
    while (performance.now() < end) {
      await once()
      await delay(pauseMs)
    }
  }
  let rss = 0
  let asked = 0
  await Promise.all([
    ...Array.from({ length: 20 }, () => again(20, () => ask(light, '/items/svc_Role?limit=1'))),
    ...Array.from({ length: clients }, () =>
      again(Math.floor(random() * 50), () => {
        asked += 1
        return ask(pictures, `/assets/${picture}?width=${100 + asked}&format=webp`)
      }),
    ),
    again(200, async () => {
      const kilobytes = /^VmRSS:\s+(\d+) kB$/m.exec(await readFile(`/proc/${web.pid}/status`, 'utf8'))?.[1]
      rss = Math.max(rss, Math.round(Number(kilobytes) / 1024))
    }),
  ])
  return { light, pictures, rss }
}

/** Bytes of a picture are only counted, so that the clients take little of the machine. */
async function answerOf(web: Web, token: string, path: string): Promise<{ status: number; code: string | undefined }> {
  if (!path.startsWith('/assets/')) {
    const { status } = await request(web.address, token, 'GET', path)
    return { status, code: undefined }
  }
  const response = await fetch(`${web.address}${path}`)
  if (response.status === 200) {
    await response.arrayBuffer()
    return { status: 200, code: undefined }
  }
  const { error } = (await response.json()) as { error: { code: string } }
  return { status: response.status, code: error.code }
}

function wrong(name: string, { light, pictures }: Phase): string[] {
  const isRight = ({ status, code }: Seen) => status === 200 || (status === 503 && code === 'OVERLOADED')
  const told = (what: string, all: readonly Seen[]) =>
    all.slice(0, 3).map(({ status, code }) => `${name}: ${what} was answered ${status} ${code}`)
  return [
    ...told(
      'a read',
      light.filter(({ status }) => status !== 200),
    ),
    ...told(
      'a picture',
      pictures.filter((seen) => !isRight(seen)),
    ),
  ]
}

function late(alone: Phase, { light, rss, pictures }: Phase): string[] {
  const most = promised.lightTimes * percentile(alone.light, 0.99)
  const p99 = percentile(light, 0.99)
  return [
    ...(p99 > most ? [`p99 of reads ${p99}, promised ${most}`] : []),
    ...(rss > promised.rss ? [`resident megabytes ${rss}, promised ${promised.rss}`] : []),
    ...(pictures.some(({ status }) => status === 200) ? [] : ['no picture was made']),
  ]
}

/** One more picture is made; and when no client asks any more, no process for images is left. */
async function stillWorks({ web, cluster, picture }: Run, isPatient: boolean): Promise<string[]> {
  const { status } = await answerOf(web, cluster.token, `/assets/${picture}?width=99`)
  if (isPatient)
    await waitFor(async () => (await readFile(`/proc/${web.pid}/task/${web.pid}/children`, 'utf8')).trim() === '', {
      timeout: 60_000,
      what: 'the processes for images to end',
    })
  return status === 200 ? [] : [`afterwards: ${status}`]
}

const figures = (name: string, { light, pictures, rss }: Phase): Record<string, number> => ({
  [`${name}: reads`]: light.length,
  [`${name}: p50`]: percentile(light, 0.5),
  [`${name}: p99`]: percentile(light, 0.99),
  [`${name}: rss`]: rss,
  ...(pictures.length > 0 && {
    [`${name}: pictures`]: pictures.filter(({ status }) => status === 200).length,
    [`${name}: refused`]: pictures.filter(({ status }) => status === 503).length,
  }),
})

/** Milliseconds, to a tenth. */
function percentile(seen: readonly Seen[], share: number): number {
  const sorted = seen.map(({ ms }) => ms).sort((a, b) => a - b)
  return Math.round((sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0) * 10) / 10
}
