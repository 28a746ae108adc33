import { Plus, Trash2 } from 'lucide-react'
import { useState } from 'react'
import type { Catalog, Collection, Field } from '../../app/catalog.ts'
import { Button, IconButton } from '../../ui/button.tsx'
import { Input, Select } from '../../ui/field.tsx'
import { emptyGroup, type FilterCondition, type FilterGroup, type FilterNode, relatedOperator } from './filter.ts'
import styles from './filter-builder.module.css'
import { OperandControl, type Variable } from './operand.tsx'
import { type Operator, operatorNamed, operatorsOf } from './operators.ts'

type Context = {
  readonly collection: Collection
  readonly catalog: Catalog
  /** Offered as values beside what is typed. */
  readonly variables?: readonly Variable[] | undefined
}

type GroupProps = Context & {
  readonly group: FilterGroup
  readonly onChange: (group: FilterGroup) => void
  readonly onRemove?: () => void
}

/** Conditions that go together, and groups of them, to any depth. */
export function Group({ group, onChange, onRemove, ...context }: GroupProps) {
  const { collection } = context
  const change = (place: number, node: FilterNode | undefined) =>
    onChange({
      ...group,
      members: node === undefined ? group.members.toSpliced(place, 1) : group.members.with(place, node),
    })
  const add = (node: FilterNode) => onChange({ ...group, members: [...group.members, node] })
  const fresh = freshCondition(collection)
  return (
    <fieldset className={styles.group}>
      <legend className="visually-hidden">Conditions</legend>
      <div className={styles.join}>
        <Select
          size="s"
          aria-label="How the conditions go together"
          value={`${group.isNot ? 'NOT ' : ''}${group.join}`}
          onChange={({ target }) =>
            onChange({
              ...group,
              isNot: target.value.startsWith('NOT'),
              join: target.value.endsWith('OR') ? 'OR' : 'AND',
            })
          }
          options={[
            { value: 'AND', label: 'All of these' },
            { value: 'OR', label: 'Any of these' },
            { value: 'NOT AND', label: 'Not all of these' },
            { value: 'NOT OR', label: 'None of these' },
          ]}
        />
        {onRemove !== undefined && (
          <IconButton label="Remove the group" size="s" onClick={onRemove}>
            <Trash2 />
          </IconButton>
        )}
      </div>
      {group.members.map((node, place) => {
        const props = { ...context, onRemove: () => change(place, undefined) }
        const key = `${String(place)}-${group.members.length}`
        return node.kind === 'group' ? (
          <Group key={key} {...props} group={node} onChange={(next) => change(place, next)} />
        ) : (
          <Condition key={key} {...props} condition={node} onChange={(next) => change(place, next)} />
        )
      })}
      <div className={styles.join}>
        <Button size="s" kind="ghost" onClick={() => add(fresh)}>
          <Plus aria-hidden="true" /> Condition
        </Button>
        <Button size="s" kind="ghost" onClick={() => add({ ...emptyGroup, join: 'OR', members: [fresh] })}>
          <Plus aria-hidden="true" /> Group
        </Button>
      </div>
    </fieldset>
  )
}

/** A new condition: the title contains something, or equals it where it is no text. */
export function freshCondition({ fields, titleField }: Collection): FilterCondition {
  const title = fields.find(({ name }) => name === titleField)
  const usual = title === undefined ? [] : operatorsOf(title)
  const operator = usual.some(({ name }) => name === 'iLike') ? 'iLike' : (usual[0]?.name ?? 'eq')
  return { kind: 'condition', path: titleField, operator, operand: '' }
}

type ConditionProps = Context & {
  readonly condition: FilterCondition
  readonly onChange: (condition: FilterCondition) => void
  readonly onRemove: () => void
}

function Condition({ collection, catalog, variables, condition, onChange, onRemove }: ConditionProps) {
  const field = fieldAt(condition.path, collection, catalog)
  const isRelation = targetOf(condition.path, collection, catalog) !== undefined
  const operators = isRelation
    ? ofRelations
    : field === undefined
      ? [operatorNamed(condition.operator)]
      : operatorsOf(field)
  const known = operators.some(({ name }) => name === condition.operator)
  const options = known ? operators : [...operators, operatorNamed(condition.operator)]
  const current = options.find(({ name }) => name === condition.operator)!
  const choosePath = (path: string) => {
    const next = fieldAt(path, collection, catalog)
    const possible =
      targetOf(path, collection, catalog) !== undefined ? ofRelations : next ? operatorsOf(next) : operators
    const operator = possible.find(({ name }) => name === condition.operator) ?? possible[0]!
    onChange({ kind: 'condition', path, operator: operator.name, operand: startOf(operator, undefined) })
  }
  return (
    <div className={styles.row}>
      <Paths collection={collection} catalog={catalog} value={condition.path} onChange={choosePath} />
      <Select
        size="s"
        aria-label="Operator"
        value={condition.operator}
        onChange={({ target }) =>
          onChange({
            ...condition,
            operator: target.value,
            operand: startOf(operatorIn(options, target.value), condition.operand),
          })
        }
        options={options.map(({ name, label }) => ({ value: name, label }))}
      />
      <OperandControl
        key={condition.path}
        field={field}
        operator={current}
        condition={condition}
        variables={variables}
        onChange={onChange}
      />
      <IconButton label="Remove the condition" size="s" onClick={onRemove}>
        <Trash2 />
      </IconButton>
    </div>
  )
}

const operatorIn = (options: readonly Operator[], name: string) => options.find((one) => one.name === name)!

const ofRelations: readonly Operator[] = [
  { name: 'isNotNull', label: 'has any', operand: 'flag' },
  { name: 'isNull', label: 'has none', operand: 'flag' },
  { name: relatedOperator, label: 'has one where', operand: 'json', example: '{"name": "…"}' },
]

/** The first operand of an operator: the typed one where it still makes sense. */
function startOf({ operand, example }: Operator, before: unknown): unknown {
  if (operand === 'flag') return true
  if (operand === 'json') return example === undefined ? before : JSON.parse(example)
  if (operand === 'list') return Array.isArray(before) ? before : before === undefined || before === '' ? [] : [before]
  if (operand === 'pair') return Array.isArray(before) ? [before[0], before[1] ?? ''] : [before ?? '', '']
  return Array.isArray(before)
    ? (before[0] ?? '')
    : typeof before === 'object' || typeof before === 'boolean'
      ? ''
      : (before ?? '')
}

type PathsProps = Pick<Context, 'collection' | 'catalog'> & {
  readonly value: string
  readonly onChange: (path: string) => void
}

/** The fields of a collection and of what it is related to; deeper paths are typed. */
function Paths({ collection, catalog, value, onChange }: PathsProps) {
  const own = collection.fields.filter(({ isHidden }) => !isHidden).map(({ name }) => name)
  const related = collection.relations.flatMap(({ name, target }) => [
    name,
    ...(catalog.get(target)?.fields.filter(({ isHidden }) => !isHidden) ?? []).map((field) => `${name}.${field.name}`),
  ])
  const isListed = [...own, ...related].includes(value)
  const [isTyped, setTyped] = useState(!isListed)
  if (isTyped)
    return (
      <Input
        size="s"
        aria-label="Path"
        placeholder="maker.country.name"
        value={value}
        onChange={({ target }) => onChange(target.value)}
      />
    )
  return (
    <Select
      size="s"
      aria-label="Field"
      value={value}
      onChange={({ target }) => (target.value === typed ? setTyped(true) : onChange(target.value))}
      options={[...own, ...related, { value: typed, label: 'another path…' }]}
    />
  )
}

const typed = '\u0000typed'

/** The collection at the end of a path of relations; undefined where it ends at a field. */
export function targetOf(path: string, collection: Collection, catalog: Catalog): Collection | undefined {
  let place: Collection | undefined = collection
  for (const name of path.split('.')) {
    const relation: string | undefined = place?.relations.find((one) => one.name === name)?.target
    place = relation === undefined ? undefined : catalog.get(relation)
  }
  return place
}

function fieldAt(path: string, collection: Collection, catalog: Catalog): Field | undefined {
  const parts = path.split('.')
  const name = parts.pop()
  const owner = parts.length === 0 ? collection : targetOf(parts.join('.'), collection, catalog)
  return owner?.fields.find((field) => field.name === name)
}
