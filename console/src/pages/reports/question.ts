import type { AggregateFunction } from '../../../../clients/schema.ts'
import type { Filter } from '../data/filter.ts'

/** What is asked of `POST /reports/{collection}`, and the form of the answer. It is what is saved, and what the address holds. */
export type Report = {
  readonly collection: string
  readonly aggregate: Readonly<Record<string, Measure>>
  readonly groupBy: readonly string[]
  /** Paths over relations, of each group's first row. */
  readonly fields?: readonly string[]
  readonly filter?: Filter
  readonly having?: Filter
  readonly sort?: readonly string[]
  readonly limit?: number
  readonly timezone?: string
  readonly form: Form
}

export type Measure = { readonly function: AggregateFunction; readonly field: string }

export const forms = ['table', 'bars', 'lines', 'area', 'figure'] as const
export type Form = (typeof forms)[number]

/** The builder's address: a report, a moment, and where the report came from. */
export type BuilderSearch = Partial<Report> & {
  readonly asOf?: string
  readonly live?: true
  /** The saved report that is open. */
  readonly saved?: string
  /** The dashboard, and its panel, that the report goes back to. */
  readonly dashboard?: string
  readonly panel?: string
}

export const functions: readonly AggregateFunction[] = ['count', 'sum', 'avg', 'min', 'max', 'distinct', 'array_agg']

/** Reads an address or a saved query; what makes no sense in it is left out. One text is a list of one. */
export function readBuilderSearch(search: Readonly<Record<string, unknown>>): BuilderSearch {
  const { aggregate, limit, form } = search
  const some = <T>(name: string, isFit: (value: unknown) => value is T) => {
    const value = search[name]
    return isFit(value) ? { [name]: value } : {}
  }
  const texts = ['collection', 'timezone', 'asOf', 'saved', 'dashboard', 'panel'].map((name) => some(name, isText))
  const lists = ['groupBy', 'fields', 'sort'].map((name) => {
    const list = isText(search[name]) ? [search[name]] : search[name]
    return isTexts(list) ? { [name]: list } : {}
  })
  const filters = ['filter', 'having'].map((name) => some(name, isObject))
  return Object.assign({}, ...texts, ...lists, ...filters, {
    ...(isObject(aggregate) && { aggregate: readMeasures(aggregate) }),
    ...(typeof limit === 'number' && Number.isSafeInteger(limit) && limit > 0 && { limit }),
    ...(forms.some((one) => one === form) && { form }),
    ...(search.live === true && { live: true }),
  })
}

function readMeasures(aggregate: Readonly<Record<string, unknown>>): Record<string, Measure> {
  const known = Object.entries(aggregate).flatMap(([name, value]) => {
    const { function: given, field } = Object(value) as { function?: unknown; field?: unknown }
    const named = functions.find((one) => one === given)
    return named === undefined || !isText(field) ? [] : [[name, { function: named, field }] as const]
  })
  return Object.fromEntries(known)
}

const isText = (value: unknown): value is string => typeof value === 'string' && value !== ''
const isTexts = (value: unknown): value is readonly string[] => Array.isArray(value) && value.every(isText)
export const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
