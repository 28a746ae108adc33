/** Field specs of a permission row (`spec/permissions.md` §2), matched against dotted paths. */

export type FieldGrant = { readonly granted: readonly Spec[]; readonly excluded: readonly string[] }
export type Spec = readonly string[]

/** Null or nothing: every own column. A leading minus takes a path out again. */
export function compileGrant(fields: readonly string[] | null): FieldGrant {
  const specs = (fields ?? []).map((spec) => spec.trim()).filter((spec) => spec !== '')
  const granted = specs.filter((spec) => !spec.startsWith('-')).map((spec) => spec.split('.'))
  const excluded = specs.filter((spec) => spec.startsWith('-')).map((spec) => spec.slice(1))
  return { granted: granted.length > 0 || fieldsAreNamed(fields) ? granted : [['*']], excluded }
}

/** Exclusions alone still start from every own column. */
const fieldsAreNamed = (fields: readonly string[] | null): boolean =>
  (fields ?? []).some((spec) => spec.trim() !== '' && !spec.trim().startsWith('-'))

/** How a column path is granted: by its name, by a wildcard, or not. */
export function grantOf(grant: FieldGrant, path: readonly string[]): 'named' | 'wildcard' | undefined {
  if (grant.excluded.includes(path.join('.'))) return undefined
  if (grant.granted.some((spec) => spec.at(-1) !== '*' && matches(spec, path))) return 'named'
  return grant.granted.some((spec) => matchesWildcard(spec, path)) ? 'wildcard' : undefined
}

/** Whether anything behind a relation path is granted. */
export function reaches(grant: FieldGrant, path: readonly string[]): boolean {
  if (grant.excluded.includes(path.join('.'))) return false
  return grant.granted.some((spec) =>
    spec.length > path.length ? matches(spec.slice(0, path.length), path) : spec.at(-1) !== '*' && matches(spec, path),
  )
}

const matches = (spec: Spec, path: readonly string[]): boolean =>
  spec.length === path.length && spec.every((part, i) => part === '*' || part === path[i])

/** `rel.*`, also as `rel` alone; `*.*` covers what `*` does. */
function matchesWildcard(spec: Spec, path: readonly string[]): boolean {
  if (spec.at(-1) !== '*') return matches([...spec, '*'], path)
  return matches(spec, path) || (spec.at(-2) === '*' && matchesWildcard(spec.slice(0, -1), path))
}
