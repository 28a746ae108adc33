type Id = string | number

/** Links that two users have changed: what others have linked or taken away since `base` stays so, and so does what `mine` has. */
export function mergedLinks(base: readonly Id[], mine: readonly Id[], theirs: readonly Id[]): readonly Id[] {
  const taken = base.filter((id) => !mine.includes(id))
  const kept = theirs.filter((id) => !taken.includes(id))
  return [...kept, ...mine.filter((id) => !base.includes(id) && !kept.includes(id))]
}
