import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'

type Profile = {
  readonly nodes: readonly {
    readonly id: number
    readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number }
  }[]
  readonly samples: readonly number[]
  readonly timeDeltas: readonly number[]
}

/** The functions in which the process of the newest profile in a directory spent its time itself, idle time aside. */
export function hottestOf(directory: string, atMost = 40): string {
  const files = readdirSync(directory).filter((name) => name.endsWith('.cpuprofile'))
  const newest = files.toSorted((a, b) => age(join(directory, a)) - age(join(directory, b))).at(-1)
  if (newest === undefined) throw new Error(`${directory} has no profile`)
  const profile = JSON.parse(readFileSync(join(directory, newest), 'utf8')) as Profile
  const spent = selfTimes(profile)
  const total = [...spent.values()].reduce((sum, time) => sum + time, 0)
  const lines = [...spent]
    .toSorted(([, a], [, b]) => b - a)
    .slice(0, atMost)
    .map(([place, time]) => `${((100 * time) / total).toFixed(1).padStart(5)} %  ${place}`)
  return [newest, ...lines].join('\n')
}

const age = (path: string): number => statSync(path).mtimeMs

function selfTimes({ nodes, samples, timeDeltas }: Profile): Map<string, number> {
  const places = new Map(nodes.map(({ id, callFrame }) => [id, placeOf(callFrame)]))
  const spent = new Map<string, number>()
  for (const [i, id] of samples.entries()) {
    const place = places.get(id)!
    if (place !== '(idle)') spent.set(place, (spent.get(place) ?? 0) + timeDeltas[i]!)
  }
  return spent
}

function placeOf({ functionName, url, lineNumber }: Profile['nodes'][number]['callFrame']): string {
  const file = url.replace(/^.*?\/(?=(?:src|node_modules)\/)/, '')
  return file === '' ? functionName || '(anonymous)' : `${functionName || '(anonymous)'} ${file}:${lineNumber + 1}`
}
