import { Plus } from 'lucide-react'
import { useId, useState } from 'react'
import { type Collection, useCatalog } from '../../app/catalog.ts'
import { Button } from '../../ui/button.tsx'
import { TextArea } from '../../ui/field.tsx'
import { emptyGroup, type FilterGroup, isEditable, isUnfinished, readFilter, writeFilter } from '../data/filter.ts'
import { freshCondition, Group, targetOf } from '../data/filter-group.tsx'
import { isNothing } from './content.ts'
import { objectIn, textOf } from './json.tsx'
import styles from './permissions.module.css'

/** The variables that a condition of a rule may compare with instead of a value. A longer way over relations is typed. */
const variables = [
  { name: '$CURRENT_USER', label: 'who asks' },
  { name: '$CURRENT_TENANT', label: 'the tenant that they are signed in to' },
  { name: '$CURRENT_ROLE', label: 'their role' },
  { name: '$CURRENT_USERROLE', label: 'their membership: user, role and tenant' },
  { name: '$CURRENT_USER.email', label: 'a field of theirs' },
  { name: '$CURRENT_USER.userRoles.tenant_Id', label: 'over relations: all of their tenants' },
  { name: '$CURRENT_SETTINGS.title', label: 'a setting, by its key' },
  { name: '$NOW', label: 'this moment' },
  { name: '$NOW-DAYS_7', label: 'a week ago' },
]

type ConditionsProps = {
  readonly collection: Collection
  /** As they are stored; they stay so until something is touched. */
  readonly initial: unknown
  /** Null for every item; undefined while they cannot be stored. */
  readonly onChange: (conditions: object | null | undefined) => void
}

/** Which items a rule lets through, as conditions or as JSON: two looks at the same. */
export function Conditions({ collection, initial, onChange }: ConditionsProps) {
  const catalog = useCatalog()
  const title = useId()
  const read = (value: unknown): FilterGroup | undefined => {
    if (isNothing(value)) return emptyGroup
    return isEditable(value)
      ? readFilter(value, (path) => targetOf(path, collection, catalog) !== undefined)
      : undefined
  }
  const [group, setGroup] = useState(() => read(initial))
  const [text, setText] = useState(() => (group === undefined ? textOf(initial) : undefined))
  const [problem, setProblem] = useState<string>()
  const edit = (next: FilterGroup) => {
    setGroup(next)
    onChange(isUnfinished(next) ? undefined : (writeFilter(next) ?? null))
  }
  const type = (next: string) => {
    const value = objectIn(next)
    setText(next)
    setProblem(value === undefined ? 'This is no JSON object' : undefined)
    onChange(value)
  }
  const asJson = () => {
    const value = group === undefined ? null : (writeFilter(group) ?? null)
    setText(textOf(value))
    // As text a condition may wait for nothing.
    if (group !== undefined && isUnfinished(group)) onChange(value)
  }
  const asForm = () => {
    const value = objectIn(text ?? '')
    const next = value === undefined ? undefined : read(value)
    if (next === undefined) return setProblem('These conditions cannot be shown as a form')
    setGroup(next)
    setText(undefined)
    setProblem(undefined)
  }
  return (
    <section className={styles.conditions} aria-labelledby={title}>
      <div className={styles.partHead}>
        <h3 id={title}>Which items</h3>
        <Button size="s" kind="ghost" onClick={text === undefined ? asJson : asForm}>
          {text === undefined ? 'Edit as JSON' : 'Edit as conditions'}
        </Button>
      </div>
      {text !== undefined && (
        <TextArea
          isCode
          rows={8}
          aria-labelledby={title}
          aria-invalid={problem !== undefined}
          placeholder={'{"userCreated_Id": "$CURRENT_USER"}'}
          value={text}
          onChange={({ target }) => type(target.value)}
        />
      )}
      {text === undefined && group !== undefined && <Form group={group} collection={collection} onEdit={edit} />}
      {problem !== undefined && (
        <p className={styles.wrong} role="alert">
          {problem}
        </p>
      )}
    </section>
  )
}

type FormProps = {
  readonly group: FilterGroup
  readonly collection: Collection
  readonly onEdit: (group: FilterGroup) => void
}

function Form({ group, collection, onEdit }: FormProps) {
  const catalog = useCatalog()
  if (group.members.length === 0)
    return (
      <div className={styles.everyItem}>
        <span>Every item.</span>
        <Button size="s" onClick={() => onEdit({ ...emptyGroup, members: [freshCondition(collection)] })}>
          <Plus aria-hidden="true" /> Add a condition
        </Button>
      </div>
    )
  return (
    <>
      <Group
        key={collection.name}
        group={group}
        collection={collection}
        catalog={catalog}
        variables={variables}
        onChange={onEdit}
      />
      {isUnfinished(group) && <p className={styles.hint}>Say what each condition compares with.</p>}
    </>
  )
}
