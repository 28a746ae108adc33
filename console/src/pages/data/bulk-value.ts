import type { Field } from '../../app/definition.ts'
import { type Draft, draftValue } from './draft.ts'
import { attempt } from './values.ts'

/** How a field of many rows is set: to a value, to a text without letters, or to none. */
export type Way = 'value' | 'empty' | 'none'

type Target = Pick<Field, 'kind' | 'element' | 'isRequired'>

/** The ways that a field has. Nothing typed means nothing chosen: what empties many rows is chosen by name. */
export const waysOf = ({ kind, isRequired }: Target): readonly { readonly value: Way; readonly label: string }[] => [
  { value: 'value', label: 'a value' },
  ...(kind === 'text' || kind === 'long text' ? [{ value: 'empty' as const, label: 'an empty text' }] : []),
  ...(isRequired ? [] : [{ value: 'none' as const, label: 'no value (null)' }]),
]

/** What many rows shall have; undefined as long as nothing is given. */
export function bulkValue(
  field: Target,
  way: Way,
  draft: Draft,
): { readonly value: unknown } | { readonly error: Error } | undefined {
  if (way === 'none') return { value: null }
  if (way === 'empty') return { value: '' }
  if (draft.text === '' && draft.exact === undefined && !draft.isIncomplete) return undefined
  return attempt(() => draftValue(field, draft))
}
