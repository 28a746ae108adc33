import { describe, expect, it } from 'vitest'
import type { Catalog } from '../../src/catalog/catalog.ts'
import { withFreshCatalog } from '../../src/catalog/store.ts'
import { errors } from '../../src/errors.ts'

/** A request is retried where another process changed the catalog under it, and nowhere else. */

const catalogOf = (version: string) => ({ version }) as Catalog

/** A store whose every look at the database finds the next version. */
function storeOf(...versions: string[]) {
  let at = 0
  return {
    current: () => catalogOf(versions[at]!),
    reloadIfStale: async () => {
      at = Math.min(at + 1, versions.length - 1)
      return catalogOf(versions[at]!)
    },
  }
}

/** Fails with these errors, one after the other, then answers how often it was run. */
function failing(...failures: Error[]) {
  let runs = 0
  return async () => {
    const failure = failures[runs]
    runs += 1
    if (failure !== undefined) throw failure
    return runs
  }
}

const unknown = () => errors.unknownCollection('book')
const stalePlan = () => Object.assign(new Error('cached plan must not change result type'), { code: '0A000' })

describe('withFreshCatalog', () => {
  it('runs work again with names that the process did not know', async () => {
    expect(await withFreshCatalog(storeOf('1', '2'), failing(unknown()))).toBe(2)
  })

  it('keeps the refusal of an unknown name', async () => {
    await expect(withFreshCatalog(storeOf('1'), failing(unknown()))).rejects.toMatchObject({
      code: 'UNKNOWN_COLLECTION',
    })
  })

  it('runs work again when a table has changed under its plan', async () => {
    expect(await withFreshCatalog(storeOf('1'), failing(stalePlan()))).toBe(2)
  })

  it('does not run again what failed for another reason', async () => {
    await expect(withFreshCatalog(storeOf('1', '2'), failing(errors.itemDenied('read')))).rejects.toMatchObject({
      status: 403,
    })
  })

  it('answers 503 when the changes do not stop', async () => {
    const failures = Array.from({ length: 9 }, stalePlan)
    await expect(withFreshCatalog(storeOf('1'), failing(...failures))).rejects.toMatchObject({ status: 503 })
  })
})
