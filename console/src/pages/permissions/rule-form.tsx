import { useState } from 'react'
import type { Collection } from '../../app/catalog.ts'
import { Conditions } from './conditions.tsx'
import { isNothing, type RuleContent } from './content.ts'
import { FieldPicker } from './field-picker.tsx'
import type { Use } from './fields.ts'
import { Json } from './json.tsx'

type RuleFormProps = {
  readonly collection: Collection
  readonly use: Use
  /** The initial value; another one takes another key. */
  readonly initial: RuleContent
  /** The members that were edited; one is undefined while it cannot be stored. */
  readonly onChange: (members: Partial<RuleContent>) => void
}

/** The parts of a rule: fields, items, related rows and default values. Parts that nobody edits stay as they are stored. */
export function RuleForm({ collection, use, initial, onChange }: RuleFormProps) {
  // The form keeps its value while it is emptied.
  const [{ relConditions, defaultValues }] = useState(initial)
  const isRead = use === 'read' || use === 'any'
  const isWrite = use === 'create' || use === 'update' || use === 'any'
  return (
    <>
      {use !== 'delete' && (
        <FieldPicker
          collection={collection}
          use={use}
          initial={initial.fields}
          onChange={(fields) => onChange({ fields })}
        />
      )}
      <Conditions
        collection={collection}
        initial={initial.conditions}
        onChange={(conditions) => onChange({ conditions })}
      />
      {(isRead || !isNothing(relConditions)) && (
        <Json
          label="Which related items"
          hint={'By relation, such as {"comments": {"state": "published"}}. Empty for all that may be read.'}
          initial={initial.relConditions}
          onChange={(value) => onChange({ relConditions: value })}
        />
      )}
      {(isWrite || !isNothing(defaultValues)) && (
        <Json
          label="Values it gets"
          hint="Put beneath what is sent."
          initial={initial.defaultValues}
          onChange={(value) => onChange({ defaultValues: value })}
        />
      )}
    </>
  )
}
