import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)

/**
 * A package that is loaded by its first use: for those that are large and that most processes never need. Name it twice,
 * as a type and as text: `onFirstUse<typeof import('ioredis')>('ioredis')`.
 */
export function onFirstUse<Package>(name: string): () => Package {
  let loaded: Package | undefined
  return () => (loaded ??= require(name) as Package)
}
