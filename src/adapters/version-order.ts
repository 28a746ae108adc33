import compareBuild from 'semver/functions/compare-build.js'
import valid from 'semver/functions/valid.js'

/**
 * The one total order of migration versions. Semantic versions come first, in the order of semver.org (a prerelease
 * before its release; versions that differ only in build metadata, by that). Timestamps come after all of them, by
 * time, then by sequence number, then by the text that follows: an installation's own steps build on the releases they
 * were written for. Any other text comes last, by itself.
 */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [readVersion(a), readVersion(b)]
  if (left.kind !== right.kind) return kinds.indexOf(left.kind) - kinds.indexOf(right.kind)
  if (left.kind === 'semantic') return compareBuild(a, b) || compareText(a, b)
  return compareKeys(left.key, right.key) || compareText(a, b)
}

/** Whether this is a semantic (`0.1.0-alpha.7`) or a timestamp version (`20241224_001_add_column`) of at most 100 characters. */
export function isVersion(text: string): boolean {
  return readVersion(text).kind !== 'other'
}

/** Whether this is a release `0.y.z`, without prerelease or build. */
export function isInitialRelease(text: string): boolean {
  return /^0\.\d+\.\d+$/.test(text) && valid(text) === text
}

type VersionKey = readonly [time: string, sequence: bigint, rest: string]
type Version = { readonly kind: (typeof kinds)[number]; readonly key: VersionKey }

const kinds = ['semantic', 'timestamp', 'other'] as const
const noKey: VersionKey = ['', 0n, '']

const longest = 100
/** A date, perhaps a time of day down to what is known, perhaps a sequence number, perhaps words. */
const timestamp = /^(\d{8}(?:\d{2}){0,3})(?:[_-](\d+)(?![A-Za-z0-9.]))?(?:[_-]([A-Za-z0-9._-]*))?$/

function readVersion(text: string): Version {
  if (text.length > longest) return { kind: 'other', key: noKey }
  // semver would also read `v1.0.0` and ` 1.0.0`, a second spelling of the same version.
  if (/^\d+\.\d/.test(text) && valid(text) !== null) return { kind: 'semantic', key: noKey }
  const [matched, time = '', sequence = '-1', rest = ''] = timestamp.exec(text) ?? []
  if (matched === undefined) return { kind: 'other', key: noKey }
  return { kind: 'timestamp', key: [time.padEnd(14, '0'), BigInt(sequence), rest] }
}

function compareKeys(a: VersionKey, b: VersionKey): number {
  for (const i of [0, 1, 2] as const) if (a[i] !== b[i]) return a[i] < b[i] ? -1 : 1
  return 0
}

/** By code units, so that the order is the same under every locale. */
function compareText(a: string, b: string): number {
  return a === b ? 0 : a < b ? -1 : 1
}
